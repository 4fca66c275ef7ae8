//! Options of the sandbox: its size, its scenario, and its speed.

use cketerm_scenario::Scenario;
use clap::Args;

/// Options of the sandbox, for `--sandbox` and for `sandbox serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct Choice {
    /// Number of nodes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub nodes: Option<u32>,
    /// Name of the scenario; `cketerm sandbox scenarios` lists them
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
    /// Random seed of machines and workloads [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Speed factor of the machines and the scenario [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    pub speed: Option<f64>,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|e| e.to_string())?;
    if (0.01..=1000.0).contains(&speed) { Ok(speed) } else { Err("expected 0.01 to 1000".to_owned()) }
}

impl Choice {
    /// Reports whether any of them was given.
    pub fn any(&self) -> bool {
        self.nodes.is_some() || self.scenario.is_some() || self.seed.is_some() || self.speed.is_some()
    }

    /// Returns the scenario and its options.
    pub fn build(&self) -> Result<(Scenario, cketerm_scenario::Options), String> {
        let scenario = Scenario::named(self.scenario.as_deref().unwrap_or(cketerm_scenario::DEFAULT));
        let mut scenario = scenario.map_err(|e| format!("--scenario: {e}"))?;
        scenario.population.registry.get_or_insert_default();
        let options = cketerm_scenario::Options {
            nodes: self.nodes,
            seed: self.seed.unwrap_or(1),
            speed: self.speed.unwrap_or(1.0),
            ..cketerm_scenario::Options::default()
        };
        Ok((scenario, options))
    }
}
