//! Choice among the repair operations of the definition: first the machine type, then one of its operations.

use cketerm_model::cluster::{Repair, describe_steps};

/// A choice and its progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// Labels of the two choices, if it is not a repair.
    labels: Option<(&'static str, &'static str)>,
    types: Vec<Type>,
    machine_type: Option<usize>,
    operation: Option<usize>,
}

/// Options of the second choice, each with lines that explain it.
pub type SecondOptions = Vec<(String, Vec<String>)>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Type {
    name: String,
    /// Operations, each with a description of its steps.
    operations: SecondOptions,
}

impl Pick {
    /// Creates a choice among all operations of the definition. `guess` is the machine's known type. If there is only
    /// one option, it is chosen already.
    pub fn of(repair: &Repair, guess: Option<&str>) -> Self {
        let types: Vec<Type> = repair
            .machine_types()
            .into_iter()
            .map(|name| {
                let operations = repair.operations_for(name).unwrap_or_default();
                let operations =
                    operations.iter().map(|o| (o.operation.clone(), describe_steps(o.steps(), "ADDRESS"))).collect();
                Type { name: name.to_owned(), operations }
            })
            .collect();
        let machine_type = match guess.and_then(|guess| types.iter().position(|t| t.name == guess)) {
            None if types.len() == 1 => Some(0),
            found => found,
        };
        let mut pick = Self { labels: None, types, machine_type, operation: None };
        pick.select_only_operation();
        pick
    }

    /// Creates another kind of choice: the two labels, and each first option with its second options and their
    /// explanations.
    pub fn from_options(labels: (&'static str, &'static str), all: Vec<(String, SecondOptions)>) -> Self {
        let types: Vec<Type> = all.into_iter().map(|(name, operations)| Type { name, operations }).collect();
        let machine_type = (types.len() == 1).then_some(0);
        let mut pick = Self { labels: Some(labels), types, machine_type, operation: None };
        pick.select_only_operation();
        pick
    }

    /// Creates a single choice: its label, and each option with lines that explain it.
    pub fn one(label: &'static str, all: Vec<(String, Vec<String>)>) -> Self {
        Self::from_options(
            (label, ""),
            all.into_iter().map(|(name, lines)| (name, vec![(String::new(), lines)])).collect(),
        )
    }

    /// Reports whether there is a second choice.
    pub fn has_second(&self) -> bool {
        !self.labels().1.is_empty()
    }

    /// Returns the labels of the two choices.
    pub fn labels(&self) -> (&'static str, &'static str) {
        self.labels.unwrap_or(("machine type", "operation"))
    }

    /// Returns the labels as the fields show them.
    pub fn short_labels(&self) -> (&'static str, &'static str) {
        self.labels.unwrap_or(("type", "operation"))
    }

    /// Reports whether this is an option of the first choice.
    pub fn offers(&self, first: &str) -> bool {
        self.types.iter().any(|option| option.name == first)
    }

    /// Returns true if there is nothing to choose.
    pub fn is_empty(&self) -> bool {
        self.types.iter().all(|t| t.operations.is_empty())
    }

    fn select_only_operation(&mut self) {
        self.operation = (self.operations().len() == 1).then_some(0);
    }

    fn operations(&self) -> &[(String, Vec<String>)] {
        self.machine_type.and_then(|at| self.types.get(at)).map_or(&[], |t| &t.operations)
    }

    /// Chooses a type by its name, if there is one.
    pub fn choose(&mut self, name: &str) {
        if let Some(at) = self.types.iter().position(|t| t.name == name) {
            self.machine_type = Some(at);
            self.select_only_operation();
        }
    }

    /// Chooses an operation of the chosen type by its name, if there is one.
    pub fn choose_operation(&mut self, name: &str) {
        if let Some(at) = self.operations().iter().position(|(operation, _)| operation == name) {
            self.operation = Some(at);
        }
    }

    /// Chooses the next or the previous type and resets the operation.
    pub fn cycle_type(&mut self, forward: bool) {
        let before = self.machine_type;
        self.machine_type = cycled(before, self.types.len(), forward);
        if self.machine_type != before {
            self.select_only_operation();
        }
    }

    /// Chooses the next or the previous operation of the type.
    pub fn cycle_operation(&mut self, forward: bool) {
        self.operation = cycled(self.operation, self.operations().len(), forward);
    }

    /// Returns type and operation, once both are chosen.
    pub fn chosen(&self) -> Option<(&str, &str)> {
        Some((self.machine_type()?, self.operation()?))
    }

    /// Returns the type, once it is chosen.
    pub fn machine_type(&self) -> Option<&str> {
        Some(&self.types.get(self.machine_type?)?.name)
    }

    fn operation(&self) -> Option<&str> {
        Some(&self.operations().get(self.operation?)?.0)
    }

    /// Returns the field of the type: the chosen one, and the number of options.
    pub fn type_field(&self) -> String {
        shown(self.machine_type(), self.machine_type, self.types.len())
    }

    /// Returns the field of the operation.
    pub fn operation_field(&self) -> String {
        if self.machine_type.is_none() {
            return format!("choose the {} first", self.labels().0);
        }
        shown(self.operation(), self.operation, self.operations().len())
    }

    /// Returns the steps of the chosen operation, one per line.
    pub fn steps(&self) -> &[String] {
        self.operation.and_then(|at| self.operations().get(at)).map_or(&[], |(_, steps)| steps)
    }
}

fn cycled(at: Option<usize>, all: usize, forward: bool) -> Option<usize> {
    match (at, forward) {
        _ if all == 0 => None,
        (None, true) => Some(0),
        (None, false) => Some(all - 1),
        (Some(at), true) => Some((at + 1) % all),
        (Some(at), false) => Some((at + all - 1) % all),
    }
}

fn shown(name: Option<&str>, at: Option<usize>, all: usize) -> String {
    match (name, at) {
        (Some(name), Some(_)) if all == 1 => format!("{name}  (the only one)"),
        (Some(name), Some(at)) => format!("< {name} >  ({} of {all})", at + 1),
        _ => format!("< choose >  ({all})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair(types: &[&str], operations: &[&str]) -> Repair {
        let operations: Vec<_> = operations
            .iter()
            .map(|o| serde_json::json!({"operation": o, "repair_steps": [{"repair_command": ["cycle", "-f"]}]}))
            .collect();
        let procedure = serde_json::json!({"machine_types": types, "repair_operations": operations});
        serde_json::from_value(serde_json::json!({"repair_procedures": [procedure]})).unwrap()
    }

    #[test]
    fn a_single_option_is_preselected_and_several_are_not() {
        assert_eq!(Pick::of(&repair(&["a"], &["x"]), None).chosen(), Some(("a", "x")));
        assert_eq!(Pick::of(&repair(&["a", "b"], &["x"]), None).chosen(), None);
        assert_eq!(Pick::of(&repair(&["a", "b"], &["x"]), Some("b")).chosen(), Some(("b", "x")));
        assert_eq!(Pick::of(&repair(&["a"], &["x", "y"]), Some("gone")).chosen(), None);
        assert!(Pick::of(&Repair::default(), None).is_empty());
    }

    #[test]
    fn options_wrap_around_in_both_directions() {
        let mut pick = Pick::of(&repair(&["a", "b"], &["x", "y"]), None);
        pick.cycle_operation(true);
        assert_eq!(pick.chosen(), None, "no operation without a type");
        pick.cycle_type(false);
        pick.cycle_operation(true);
        assert_eq!(pick.chosen(), Some(("b", "x")));
        pick.cycle_operation(false);
        assert_eq!(pick.chosen(), Some(("b", "y")));
        assert_eq!(pick.steps(), ["step 1: cycle -f ADDRESS, then one health check"]);
    }
}
