//! Amounts of the resources of nodes, and the requests of a whole pod.

use std::{collections::BTreeMap, fmt};

use super::quantity::Quantity;

/// Name of a resource: `cpu`, `memory`, `pods`, `example.com/gpu` …
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Box<str>);

impl ResourceName {
    /// Name of the number of pods of a node.
    pub const PODS: &str = "pods";
    /// Name of the CPU.
    pub const CPU: &str = "cpu";
    /// Name of the memory.
    pub const MEMORY: &str = "memory";

    /// Marks a name that enters the program.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Converts a quantity into the integer that is compared: thousandths for the CPU, otherwise bytes or pieces.
    pub fn amount(&self, quantity: Quantity) -> Amount {
        Amount(if self.as_str() == Self::CPU { quantity.millis() } else { quantity.units() })
    }

    /// Returns an amount of this resource with its unit: `3.5 CPU`, `512Mi memory`, `2 example.com/gpu`.
    pub fn show(&self, amount: Amount) -> String {
        let unit = if self.as_str() == Self::CPU { "CPU" } else { self.as_str() };
        format!("{} {unit}", self.show_number(amount))
    }

    /// Returns an amount of this resource without its unit: `3.5`, `512Mi`, `2`.
    pub fn show_number(&self, amount: Amount) -> String {
        match self.as_str() {
            Self::CPU => thousandths(amount.0),
            Self::MEMORY | "ephemeral-storage" => bytes(amount.0),
            name if name.starts_with("hugepages-") => bytes(amount.0),
            _ => amount.0.to_string(),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes thousandths as a decimal number without trailing zeros.
fn thousandths(value: i64) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let (whole, rest) = (value.unsigned_abs() / 1000, value.unsigned_abs() % 1000);
    let text = format!("{sign}{whole}.{rest:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes bytes with a binary suffix and at most one decimal, rounded down.
fn bytes(value: i64) -> String {
    let size = value.unsigned_abs();
    let sign = if value < 0 { "-" } else { "" };
    let units = [(1_u64 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let Some((unit, suffix)) = units.into_iter().find(|(unit, _)| size >= *unit) else {
        return format!("{sign}{size}");
    };
    match size % unit / (unit / 10) {
        0 => format!("{sign}{}{suffix}", size / unit),
        tenth => format!("{sign}{}.{}{suffix}", size / unit, tenth.min(9)),
    }
}

/// Amount of a resource: thousandths of a CPU, otherwise bytes or pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub i64);

/// Amounts by resource. A missing resource counts as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources(BTreeMap<ResourceName, Amount>);

impl Resources {
    /// Sets one amount.
    pub fn set(&mut self, name: ResourceName, amount: Amount) {
        self.0.insert(name, amount);
    }

    /// Returns the amount of a resource.
    pub fn get(&self, name: &ResourceName) -> Amount {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Returns all amounts in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Amount)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Adds amounts, saturating.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let sum = self.0.entry(name.clone()).or_default();
            sum.0 = sum.0.saturating_add(amount.0);
        }
    }

    /// Raises each amount to that of `other` if it is larger.
    pub fn raise(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let most = self.0.entry(name.clone()).or_default();
            *most = amount.max(*most);
        }
    }
}

impl FromIterator<(ResourceName, Amount)> for Resources {
    fn from_iter<I: IntoIterator<Item = (ResourceName, Amount)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

/// Requests of an init container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitRequests {
    /// Requests of the container.
    pub requests: Resources,
    /// Whether it runs beside the later containers: `restartPolicy: Always`.
    pub restartable: bool,
}

/// Requests of the parts of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartRequests {
    /// Requests of each container.
    pub containers: Vec<Resources>,
    /// Requests of each init container, in their order.
    pub init: Vec<InitRequests>,
    /// Requests of the pod as a whole, which replace those of its containers.
    pub pod: Resources,
    /// Overhead of its runtime class.
    pub overhead: Resources,
}

impl PartRequests {
    /// Returns the amounts that the scheduler compares with the free ones of a node.
    pub fn effective(&self) -> Resources {
        let (mut running, mut most, mut beside) = (Resources::default(), Resources::default(), Resources::default());
        for container in &self.containers {
            running.add(container);
        }
        for init in &self.init {
            let mut peak = beside.clone();
            peak.add(&init.requests);
            if init.restartable {
                running.add(&init.requests);
                beside = peak.clone();
            }
            most.raise(&peak);
        }
        most.raise(&running);
        for (name, amount) in self.pod.iter() {
            most.set(name.clone(), amount);
        }
        most.add(&self.overhead);
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: i64, memory: i64) -> Resources {
        [(ResourceName::new("cpu"), Amount(cpu)), (ResourceName::new("memory"), Amount(memory))].into_iter().collect()
    }

    fn init(cpu: i64, memory: i64, restartable: bool) -> InitRequests {
        InitRequests { requests: amounts(cpu, memory), restartable }
    }

    #[test]
    fn the_larger_of_running_and_starting_counts() {
        let containers = vec![amounts(100, 10), amounts(200, 20)];
        for (what, init, pod, overhead, expected) in [
            ("containers", vec![], Resources::default(), Resources::default(), amounts(300, 30)),
            ("init", vec![init(500, 5, false)], Resources::default(), Resources::default(), amounts(500, 30)),
            (
                "sidecar before",
                vec![init(50, 5, true), init(400, 5, false)],
                Resources::default(),
                Resources::default(),
                amounts(450, 35),
            ),
            (
                "sidecar after",
                vec![init(400, 5, false), init(50, 5, true)],
                Resources::default(),
                Resources::default(),
                amounts(400, 35),
            ),
            ("pod level and overhead", vec![], amounts(1_000, 100), amounts(10, 1), amounts(1_010, 101)),
        ] {
            let parts = PartRequests { containers: containers.clone(), init, pod, overhead };
            assert_eq!(parts.effective(), expected, "{what}");
        }
    }

    #[test]
    fn sums_saturate() {
        let parts = PartRequests { containers: vec![amounts(i64::MAX, 1), amounts(5, 1)], ..PartRequests::default() };
        assert_eq!(parts.effective(), amounts(i64::MAX, 2));
    }

    #[test]
    fn amounts_read_as_people_write_them() {
        for (name, amount, expected) in [
            ("cpu", 3_500, "3.5 CPU"),
            ("cpu", 8_000, "8 CPU"),
            ("cpu", 0, "0 CPU"),
            ("cpu", -250, "-0.25 CPU"),
            ("memory", 512 << 20, "512Mi memory"),
            ("memory", 1_610_612_736, "1.5Gi memory"),
            ("memory", 12, "12 memory"),
            ("hugepages-2Mi", 4 << 20, "4Mi hugepages-2Mi"),
            ("example.com/gpu", 2, "2 example.com/gpu"),
        ] {
            assert_eq!(ResourceName::new(name).show(Amount(amount)), expected);
        }
    }
}
