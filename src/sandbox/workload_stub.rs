//! stub
use super::{
    kubernetes::Objects,
    machines::{Machine, Machines},
};
use serde::Deserialize;
/// stub
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Population {
    /// n
    pub nodes: usize,
    /// p
    pub pods_per_node: usize,
}
impl Default for Population {
    fn default() -> Self {
        Self { nodes: 60, pods_per_node: 5 }
    }
}
impl Population {
    /// m
    pub fn machines(&self) -> Result<Vec<Machine>, String> {
        Ok((0..self.nodes)
            .map(|i| Machine {
                name: if i < 3 { format!("cp{}", i + 1) } else { format!("w{}", i - 2) },
                address: format!("10.0.0.{}", i + 1),
                control_plane: i < 3,
                ..Machine::default()
            })
            .collect())
    }
    /// f
    pub fn fill(&self, objects: &Objects, machines: &Machines) -> Result<(), String> {
        for m in machines.list() {
            objects.create(&super::kubernetes::resource::NODES, "", serde_json::json!({"metadata": {"name": m.name}, "spec": {}, "status": {"addresses": [{"type": "InternalIP", "address": m.address}], "conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": machines.look(&m.address).unwrap().boot_id}}})).map_err(|e| e.message)?;
        }
        Ok(())
    }
}
