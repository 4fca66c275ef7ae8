//! The CKE of a scenario: it leads before any engine exists, and is stopped and started like a service on its host.

use std::{sync::Mutex, time::Duration};

use cketerm_model::clock::Clock;
use cketerm_sandbox::{
    Sandbox,
    cke::{Cke, Log, Settings},
};
use tokio::task::JoinHandle;

use crate::data::CkeHost;

/// Maximum time until CKE leads a new site.
const ELECTION_LIMIT: Duration = Duration::from_mins(1);

/// A CKE and its process.
pub struct CkeService {
    settings: Settings,
    process: Mutex<(Cke, JoinHandle<()>)>,
}

impl CkeService {
    /// Starts CKE and waits until it leads.
    pub(crate) async fn start(
        site: &Sandbox,
        host: &CkeHost,
        [interval, write_delay]: [Duration; 2],
        seed: u64,
        clock: &Clock,
    ) -> Result<Self, String> {
        let settings = Settings { host: host.host.clone(), interval, write_delay, seed };
        let service = Self { process: Mutex::new(spawn(&settings, site, clock)), settings };
        let leads = async {
            while service.log().terms == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let led = tokio::time::timeout(ELECTION_LIMIT, leads).await;
        led.map(|()| service).map_err(|_| "the sandbox's CKE did not become leader".to_owned())
    }

    /// Returns the events of the process that was started last.
    pub fn log(&self) -> Log {
        self.locked().0.log()
    }

    /// Stops CKE: it finishes its pass and gives up the lock.
    pub fn stop(&self) {
        self.locked().0.stop();
    }

    /// Kills CKE: its lease expires by itself.
    pub fn kill(&self) {
        self.locked().1.abort();
    }

    /// Starts CKE again.
    pub fn start_again(&self, site: &Sandbox, clock: &Clock) {
        let mut process = self.locked();
        process.0.stop();
        *process = spawn(&self.settings, site, clock);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, (Cke, JoinHandle<()>)> {
        self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for CkeService {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(settings: &Settings, site: &Sandbox, clock: &Clock) -> (Cke, JoinHandle<()>) {
    let cke = Cke::new(settings.clone(), site.etcd.client(), site.api.client(), site.machines.clone(), clock.clone());
    (cke.clone(), tokio::spawn(cke.run()))
}
