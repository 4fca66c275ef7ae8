//! The example over 200 machines of docs/sabakan.md.

use super::*;

const SEED: &str = include_str!("../../../../docs/examples/sabakan/template.yml");
const MACHINES: &str = include_str!("../../../../docs/examples/sabakan/machines.json");
const CONSTRAINTS: &str = include_str!("../../../../docs/examples/sabakan/constraints.json");

#[test]
fn weights_6_3_1_over_200_machines_are_spread_over_racks_with_reasons() {
    let machines = super::super::machine::read(MACHINES).unwrap();
    assert_eq!((machines.list.len(), machines.warnings.len()), (200, 0));
    let template = Template::read(SEED).unwrap();
    let constraints: Constraints = serde_json::from_str(CONSTRAINTS).unwrap();
    let mut scene = Scene::new(&["", ""], 3, (100, 0), machines.list);
    (scene.template, scene.constraints) = (template, constraints);
    let plan = scene.plan().unwrap();
    let workers: Vec<&Choice> = plan.nodes.iter().filter(|c| c.control_plane == Some(false)).collect();
    let count = |role: &str| workers.iter().filter(|c| c.role == role).count();
    assert_eq!((count("compute"), count("storage"), count("gpu")), (60, 30, 10));
    let rack: BTreeMap<&str, i64> = scene.machines.iter().map(|m| (m.address.as_str(), m.rack)).collect();
    let mut racks: BTreeMap<i64, usize> = BTreeMap::new();
    for worker in &workers {
        *racks.entry(rack[worker.address.as_str()]).or_default() += 1;
    }
    assert!(racks.len() == 10 && racks.values().all(|n| (8..=12).contains(n)), "{racks:?}");
    let planes: BTreeSet<i64> =
        plan.nodes.iter().filter(|c| c.control_plane == Some(true)).map(|c| rack[c.address.as_str()]).collect();
    assert_eq!(planes.len(), 3, "control planes are in three racks");
    for choice in &plan.nodes {
        let why = choice.why.to_string();
        assert!(why.contains("score") && why.contains("in rack") && why.contains("of lifetime"), "{why}");
    }
}
