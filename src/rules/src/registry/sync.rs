//! Node synchronisation: the definition's labels, annotations and taints on Kubernetes Nodes. They are added and
//! updated, never removed, except those under `cke.cybozu.com/` that the definition does not have (SAB-75, SAB-76).
//! Pure: its result is also the dry run.

use std::collections::BTreeMap;

use cketerm_model::{
    cluster::{Node, Taint},
    kube::{CKE_ANNOTATION, MetadataPatch, NodeMetadata},
};

/// CKE's own prefix.
const CKE_PREFIX: &str = "cke.cybozu.com/";
/// Keys that CKE itself writes without the definition: its mark of reboots, and the taint of control planes.
const KEPT_KEYS: [&str; 2] = [CKE_ANNOTATION, "cke.cybozu.com/master"];

/// Returns the changes that make a Node match the definition; none = no change.
pub fn description(desired: &Node, found: &NodeMetadata) -> Option<MetadataPatch> {
    let empty = BTreeMap::new();
    let labels = string_changes(desired.labels.as_ref().unwrap_or(&empty), &found.labels);
    let annotations = string_changes(desired.annotations.as_ref().unwrap_or(&empty), &found.annotations);
    let taints = taints(desired.taints.as_deref().unwrap_or_default(), &found.taints);
    let nothing = labels.is_empty() && annotations.is_empty() && taints.is_none();
    (!nothing).then_some(MetadataPatch { labels, annotations, taints })
}

/// Returns the values to set, and (none) to remove. Both sides are ordered by name, so that each is read once: a pass
/// compares every Node.
fn string_changes(
    desired: &BTreeMap<String, String>,
    found: &cketerm_model::kube::PackedPairs,
) -> BTreeMap<String, Option<String>> {
    let mut changes = BTreeMap::new();
    let mut found = found.iter().peekable();
    for (name, value) in desired {
        while let Some((unwanted, _)) = found.next_if(|(other, _)| *other < name.as_str()) {
            remove(unwanted, &mut changes);
        }
        let present = found.next_if(|(other, _)| *other == name.as_str());
        if present.is_none_or(|(_, old)| old != value) {
            changes.insert(name.clone(), Some(value.clone()));
        }
    }
    found.for_each(|(unwanted, _)| remove(unwanted, &mut changes));
    changes
}

fn remove(name: &str, changes: &mut BTreeMap<String, Option<String>>) {
    if removable(name) {
        changes.insert(name.to_owned(), None);
    }
}

fn removable(key: &str) -> bool {
    key.starts_with(CKE_PREFIX) && !KEPT_KEYS.contains(&key)
}

/// Returns the whole list of taints if it must change.
fn taints(desired: &[Taint], found: &[Taint]) -> Option<Vec<Taint>> {
    let same = |a: &Taint, b: &Taint| a.key == b.key && a.effect == b.effect;
    let mut list: Vec<Taint> =
        found.iter().filter(|f| desired.iter().any(|w| same(w, f)) || !removable(&f.key)).cloned().collect();
    for taint in desired {
        match list.iter_mut().find(|f| same(f, taint)) {
            Some(there) => there.value.clone_from(&taint.value),
            None => list.push(taint.clone()),
        }
    }
    (list != found).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::kube::PackedPairs;

    fn words_of(pairs: &[(&str, &str)]) -> PackedPairs {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: value.into(), effect: effect.into(), ..Taint::default() }
    }

    #[test]
    fn labels_and_annotations_are_synced_and_only_cke_keys_are_removed() {
        let desired = Node {
            labels: Some(map(&[("cke.cybozu.com/rack", "3"), ("own", "1")])),
            annotations: Some(map(&[("cke.cybozu.com/serial", "s1")])),
            ..Node::default()
        };
        let found = NodeMetadata {
            labels: words_of(&[
                ("cke.cybozu.com/rack", "2"),
                ("cke.cybozu.com/old", ""),
                ("cke.cybozu.com/master", "true"),
                ("foreign", "x"),
                ("sabakan.cke.cybozu.com/gone", "x"),
            ]),
            annotations: words_of(&[(CKE_ANNOTATION, "true"), ("cke.cybozu.com/retire-date", "x")]),
            taints: Vec::new(),
        };
        let change = description(&desired, &found).unwrap();
        let set = |v: &str| Some(v.to_owned());
        assert_eq!(
            change.labels,
            [
                ("cke.cybozu.com/rack".to_owned(), set("3")),
                ("own".to_owned(), set("1")),
                ("cke.cybozu.com/old".to_owned(), None)
            ]
            .into()
        );
        assert_eq!(
            change.annotations,
            [("cke.cybozu.com/serial".to_owned(), set("s1")), ("cke.cybozu.com/retire-date".to_owned(), None)].into(),
            "the annotation of a reboot stays"
        );
        assert_eq!(change.taints, None);
    }

    #[test]
    fn a_state_taint_is_added_updated_and_removed_and_foreign_taints_stay() {
        let state = |value, effect| taint("cke.cybozu.com/state", value, effect);
        let foreign = taint("node.kubernetes.io/unreachable", "", "NoExecute");
        let found = |taints: &[Taint]| NodeMetadata { taints: taints.to_vec(), ..NodeMetadata::default() };
        let node = |taints: &[Taint]| Node { taints: Some(taints.to_vec()), ..Node::default() };
        let unhealthy = state("unhealthy", "NoSchedule");
        let added =
            description(&node(std::slice::from_ref(&unhealthy)), &found(std::slice::from_ref(&foreign))).unwrap();
        assert_eq!(added.taints, Some(vec![foreign.clone(), unhealthy.clone()]));
        let both = found(&[foreign.clone(), unhealthy]);
        let unreachable = state("unreachable", "NoSchedule");
        let other = description(&node(std::slice::from_ref(&unreachable)), &both).unwrap();
        assert_eq!(other.taints, Some(vec![foreign.clone(), unreachable]));
        assert_eq!(description(&Node::default(), &both).unwrap().taints, Some(vec![foreign.clone()]));
        assert_eq!(description(&Node::default(), &found(&[foreign])), None, "a second run changes nothing");
    }

    /// The names of both sides in any order: only first, only last, only in the middle, on both sides.
    #[test]
    fn every_name_of_both_sides_is_compared_once() {
        let names = ["cke.cybozu.com/a", "cke.cybozu.com/b", "cke.cybozu.com/c"];
        let side = |bits: u32, value: &str| -> Vec<(String, String)> {
            let chosen = names.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0);
            chosen.map(|(_, name)| ((*name).to_owned(), value.to_owned())).collect()
        };
        for (wanted, present) in (0..8).flat_map(|wanted| (0..8).map(move |present| (wanted, present))) {
            for found_value in ["new", "old"] {
                let desired: BTreeMap<String, String> = side(wanted, "new").into_iter().collect();
                let found: PackedPairs = side(present, found_value).into_iter().collect();
                let changes = string_changes(&desired, &found);
                for (i, name) in names.iter().enumerate() {
                    let (wanted, present) = (wanted & (1 << i) != 0, present & (1 << i) != 0);
                    let expected = match (wanted, present) {
                        (true, true) if found_value == "new" => None,
                        (true, _) => Some(Some("new".to_owned())),
                        (false, true) => Some(None),
                        (false, false) => None,
                    };
                    assert_eq!(changes.get(*name), expected.as_ref(), "{name}: {desired:?}, {found:?}");
                }
            }
        }
    }
}
