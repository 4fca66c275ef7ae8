//! Numbers of pods by topology domain, which affinity, anti-affinity and spread compare.

/// Index of a node in the cluster.
pub(super) type NodeId = usize;
/// Index of a domain of one topology key.
pub(super) type DomainId = u32;

/// Domain of each node by one label; none for nodes without it.
pub(super) struct Topology {
    pub(super) key: String,
    pub(super) domains: Vec<Option<DomainId>>,
    pub(super) count: usize,
}

/// Numbers of pods in each domain. The smallest number is kept up to date, so that no comparison scans all domains.
#[derive(Clone)]
pub(super) struct Counts {
    by_domain: Vec<u32>,
    /// Number of domains, among those that exist, with each number of pods.
    histogram: Vec<u32>,
    domains: u32,
    least: usize,
    total: u64,
    exists: std::rc::Rc<[bool]>,
}

impl Counts {
    /// Starts with no pod. `exists`: domains that count for the smallest number.
    pub(super) fn new(exists: std::rc::Rc<[bool]>) -> Self {
        let domains = exists.iter().filter(|exists| **exists).count();
        let domains = u32::try_from(domains).unwrap_or(u32::MAX);
        Self { by_domain: vec![0; exists.len()], histogram: vec![domains], domains, least: 0, total: 0, exists }
    }

    pub(super) fn get(&self, domain: DomainId) -> u32 {
        self.by_domain.get(domain as usize).copied().unwrap_or(0)
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of domains.
    pub(super) fn domains(&self) -> u32 {
        self.domains
    }

    /// Returns the smallest number of pods of a domain; none without domains.
    pub(super) fn least(&self) -> Option<u32> {
        (self.domains > 0).then(|| u32::try_from(self.least).unwrap_or(u32::MAX))
    }

    pub(super) fn add(&mut self, domain: DomainId) {
        let Some(count) = self.by_domain.get_mut(domain as usize) else { return };
        let before = *count as usize;
        *count = count.saturating_add(1);
        self.total = self.total.saturating_add(1);
        self.moved(domain, before, before + 1);
        if before == self.least && self.histogram.get(before) == Some(&0) && self.domains > 0 {
            self.least = before + 1;
        }
    }

    pub(super) fn remove(&mut self, domain: DomainId) {
        let Some(count) = self.by_domain.get_mut(domain as usize).filter(|count| **count > 0) else { return };
        let before = *count as usize;
        *count -= 1;
        self.total = self.total.saturating_sub(1);
        self.moved(domain, before, before - 1);
        if self.exists.get(domain as usize) == Some(&true) {
            self.least = self.least.min(before - 1);
        }
    }

    fn moved(&mut self, domain: DomainId, from: usize, to: usize) {
        if self.exists.get(domain as usize) != Some(&true) {
            return;
        }
        if self.histogram.len() <= to {
            self.histogram.resize(to + 1, 0);
        }
        self.histogram[from] -= 1;
        self.histogram[to] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_number_is_that_of_a_scan() {
        let mut dice = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let exists: Vec<bool> = (0..dice.usize(1..6)).map(|_| dice.u8(..4) > 0).collect();
            let (mut counts, mut plain) = (Counts::new(exists.clone().into()), vec![0_u32; exists.len()]);
            for _ in 0..60 {
                let domain = dice.usize(..exists.len());
                let id = DomainId::try_from(domain).unwrap();
                if dice.bool() {
                    counts.add(id);
                    plain[domain] += 1;
                } else {
                    counts.remove(id);
                    plain[domain] = plain[domain].saturating_sub(1);
                }
                let existing = plain.iter().zip(&exists).filter(|(_, exists)| **exists).map(|(count, _)| *count);
                assert_eq!(counts.least(), existing.min());
                assert_eq!(
                    (counts.get(id), counts.total()),
                    (plain[domain], plain.iter().map(|c| u64::from(*c)).sum())
                );
            }
        }
    }
}
