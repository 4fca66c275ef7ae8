use cketerm_model::names::Address;

use super::*;

#[test]
fn an_address_claimed_by_two_nodes_is_refused() {
    let node = |name: &str, addresses: &[&str]| NodeRow {
        name: NodeName::new(name),
        addresses: addresses.iter().map(|a| Address::new(*a)).collect(),
        ..NodeRow::default()
    };
    let nodes = [node("w1", &["10.0.0.1", "w1"]), node("w2", &["10.0.0.2"]), node("evil", &["10.0.0.9", "10.0.0.1"])];
    assert!(duplicate_claim("10.0.0.1", &nodes).unwrap().contains("Nodes w1, evil all claim"));
    assert_eq!(duplicate_claim("10.0.0.2", &nodes), None);
    assert_eq!(duplicate_claim("10.0.0.3", &nodes), None);
}
