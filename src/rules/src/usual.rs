//! Usual durations: how long each phase of an entry takes in this cluster, by queue, machine type and role. They come
//! from the entries that ended lately, and running phases are judged against them.
//!
//! | module | contents |
//! | --- | --- |
//! | `ended` | durations of one ended entry, from its history record |
//! | `running` | the phase that an entry is in now, and since when |
//! | `text` | durations as screens and commands show them |
//! | this one | median and p90 of each kind of phase, and the judgement |

mod ended;
mod running;
#[cfg(test)]
mod tests;
pub mod text;

use cketerm_model::{
    entry::QueueKind,
    labels::{Labels, attribute},
    names::Address,
    stored::view::StoreView,
};
use foldhash::HashMap;
use jiff::{SignedDuration, Timestamp};

pub use self::{
    ended::{EndedTimes, PhaseTime},
    running::{Running, running},
};

/// Fewest ended entries from which a usual duration is known.
pub const MIN_SAMPLES: usize = 8;
/// Most ended entries that are counted for one kind of phase: the newest ones.
pub const MAX_SAMPLES: usize = 400;
/// Factor over the p90 beyond which a phase is slow.
const SLOW_FACTOR: f64 = 1.5;
/// Shortest duration that can be slow. Stored times have whole seconds.
const SLOW_FLOOR: f64 = 5.0;

/// Phase of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// From the start of the drain to the command.
    Drain,
    /// One run of the reboot or repair command.
    Command,
    /// From the end of the reboot command to the end of the entry. An API server settles within it.
    Boot,
    /// From the end of a repair command to the next step, or to the end of the entry.
    RepairStep,
    /// From the start of the first drain, or the first command, to the end of the entry.
    Whole,
}

/// Kind of machine, as far as it decides how long something takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineClass {
    /// Machine type of a repair. Of a reboot the label `machine-type`, else the label `role`.
    pub machine_type: Option<String>,
    /// Whether it is an API server.
    pub api_server: bool,
}

impl MachineClass {
    /// Returns the class of a machine with these labels.
    pub fn of(labels: Option<&Labels>, api_server: bool) -> Self {
        let named = |name| labels.and_then(|labels| attribute(labels, name));
        Self { machine_type: named("machine-type").or_else(|| named("role")).cloned(), api_server }
    }

    /// Returns the class of the machine with this address in the stored definition.
    pub fn of_address(store: &StoreView, address: &Address) -> Self {
        let member = store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
        member.map_or_else(Self::default, |m| Self::of(m.node().labels.as_ref(), m.control_plane))
    }
}

/// Everything that a duration is compared by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhaseKind {
    /// Queue.
    pub queue: QueueKind,
    /// Phase.
    pub phase: Phase,
    /// Kind of machine.
    pub class: MachineClass,
    /// Operation of a repair.
    pub operation: Option<String>,
    /// Step of a repair, counted from 0.
    pub step: Option<i64>,
}

impl PhaseKind {
    /// Returns the kind of a phase of the reboot queue.
    pub fn reboot(phase: Phase, class: MachineClass) -> Self {
        Self { queue: QueueKind::Reboot, phase, class, operation: None, step: None }
    }

    /// Returns the kind with less and less detail: without the machine type, then without the role, step and operation.
    fn with_less_detail(&self) -> [Self; 2] {
        let by_role =
            Self { class: MachineClass { machine_type: None, api_server: self.class.api_server }, ..self.clone() };
        let of_queue = Self { class: MachineClass::default(), operation: None, step: None, ..self.clone() };
        [by_role, of_queue]
    }
}

/// Whether a duration is usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Not slow.
    Usual,
    /// Beyond the p90 times 1.5.
    Slow,
}

/// Usual duration of one kind of phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// Half of the phases took at most this long.
    pub median: SignedDuration,
    /// Nine of ten took at most this long.
    pub p90: SignedDuration,
    /// Number of phases that it was computed from.
    pub samples: usize,
}

impl Usual {
    /// Computes it from durations in seconds. `None` if there are fewer than [`MIN_SAMPLES`].
    pub fn of(mut seconds: Vec<f64>) -> Option<Self> {
        if seconds.len() < MIN_SAMPLES {
            return None;
        }
        seconds.sort_by(f64::total_cmp);
        let at = |share| duration(quantile(&seconds, share));
        Some(Self { median: at(0.5), p90: at(0.9), samples: seconds.len() })
    }

    /// Judges a duration.
    pub fn judge(&self, elapsed: SignedDuration) -> Pace {
        let limit = (self.p90.as_secs_f64() * SLOW_FACTOR).max(SLOW_FLOOR);
        if elapsed.as_secs_f64() > limit { Pace::Slow } else { Pace::Usual }
    }
}

/// Usual durations of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsualTimes {
    ended: Vec<EndedTimes>,
    by_kind: HashMap<PhaseKind, Usual>,
}

impl UsualTimes {
    /// Computes them from ended entries, newest first. `class_of` names the kind of a machine that was rebooted.
    pub fn of(ended: Vec<EndedTimes>, class_of: impl Fn(&Address) -> MachineClass) -> Self {
        let mut samples: HashMap<PhaseKind, Vec<f64>> = HashMap::default();
        for entry in ended.iter().filter(|entry| entry.end.good()) {
            let class = entry.class(&class_of);
            for time in &entry.phases {
                let kind = PhaseKind {
                    queue: entry.entry.queue,
                    phase: time.phase,
                    class: class.clone(),
                    operation: entry.operation.clone(),
                    step: time.step,
                };
                let [by_role, of_queue] = kind.with_less_detail();
                let mut kinds = vec![kind, by_role, of_queue];
                kinds.dedup();
                for kind in kinds {
                    let of_kind = samples.entry(kind).or_default();
                    if of_kind.len() < MAX_SAMPLES {
                        of_kind.push(time.seconds);
                    }
                }
            }
        }
        let usual = samples.into_iter().filter_map(|(kind, seconds)| Some((kind, Usual::of(seconds)?)));
        Self { by_kind: usual.collect(), ended }
    }

    /// Returns the usual duration of this kind of phase. If too few of exactly this kind ended, all machines of the
    /// role count, else all of the queue. API servers are never compared with workers.
    pub fn of_kind(&self, kind: &PhaseKind) -> Option<&Usual> {
        let exact = self.by_kind.get(kind);
        exact.or_else(|| {
            let [by_role, of_queue] = kind.with_less_detail();
            let comparable = |kind: &PhaseKind| kind.class.api_server == by_role.class.api_server;
            let by_role = self.by_kind.get(&by_role);
            by_role.or_else(|| Some(&of_queue).filter(|kind| comparable(kind)).and_then(|kind| self.by_kind.get(kind)))
        })
    }

    /// Returns the ended entries that they were computed from, newest first.
    pub fn ended(&self) -> &[EndedTimes] {
        &self.ended
    }

    /// Returns median and p90 of the whole time in work of the entries of a queue that ended well since a time.
    pub fn whole_since(&self, queue: QueueKind, since: Timestamp) -> Option<Usual> {
        let recent = self.ended.iter().filter(|e| e.entry.queue == queue && e.end.good() && e.at >= since);
        Usual::of(recent.filter_map(|e| e.seconds_of(Phase::Whole)).collect())
    }
}

/// Returns the value below which this share of sorted values lies, interpolated; 0 without values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let (place, below) = {
        let place = share.clamp(0.0, 1.0) * last as f64;
        (place, place.floor() as usize)
    };
    let low = sorted[below.min(last)];
    let high = sorted[(below + 1).min(last)];
    low + (high - low) * place.fract()
}

/// Returns a duration of so many seconds, at least 0 and at most a hundred years.
pub(crate) fn duration(seconds: f64) -> SignedDuration {
    SignedDuration::try_from_secs_f64(seconds.clamp(0.0, 3.2e9)).unwrap_or_default()
}
