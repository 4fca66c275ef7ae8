//! What every word has at hand: settings, the connection when it needs one, and the way to print.

use super::{
    args::{AskedOutput, Globals, Output},
    output::Out,
};
use crate::{
    actions::{ActionError, Operator},
    clock::Clock,
    config::Settings,
    kubernetes::Kube,
    store::Store,
};

/// For one run of the program.
#[derive(Debug)]
pub struct Context {
    /// Local settings.
    pub settings: Settings,
    /// Where data goes.
    pub out: Out,
    output: Option<AskedOutput>,
    verbose: bool,
}

impl Context {
    /// For these settings and options.
    pub fn new(settings: Settings, globals: &Globals) -> Self {
        Self { settings, out: Out, output: globals.output, verbose: globals.verbose > 0 }
    }

    /// The form of output asked for, or the word's own.
    pub fn output(&self, default: Output) -> Output {
        match self.output {
            Some(AskedOutput::Table | AskedOutput::Simple) => Output::Table,
            Some(AskedOutput::Json) => Output::Json,
            Some(AskedOutput::Yaml) => Output::Yaml,
            None => default,
        }
    }

    /// Whether the columns of `ckecli` were asked for, and no others.
    pub fn simple(&self) -> bool {
        self.output == Some(AskedOutput::Simple)
    }

    /// etcd.
    pub async fn store(&self) -> Result<Store, ActionError> {
        Ok(Box::pin(Store::connect(&self.settings.etcd, Clock::Host)).await?)
    }

    /// An operator who touches only etcd: Kubernetes is never asked.
    pub async fn operator(&self) -> Result<Operator, ActionError> {
        Ok(Operator::new(self.store().await?, None))
    }

    /// Actions for the words that start work: where Kubernetes is configured they are refused for another cluster's etcd,
    /// and note which machine is meant. One that cannot be asked is said and keeps nobody out (spec/safety.md, Which
    /// cluster).
    pub async fn starting_operator(&self) -> Result<Operator, ActionError> {
        if self.settings.kube.is_none() {
            return self.operator().await;
        }
        let kube = match Kube::connect(&self.settings.kube, Clock::Host).await {
            Ok(kube) => Some(kube),
            Err(e) => {
                self.say(&format!("warning: goes on without Kubernetes: {e}"));
                None
            }
        };
        Ok(Operator::new(self.store().await?, kube))
    }

    /// Kubernetes, for the words that are about it.
    pub async fn kube(&self, what: &str) -> Result<Kube, ActionError> {
        if self.settings.kube.is_none() {
            return Err(ActionError::misused(format!(
                "{what} needs Kubernetes, and none is configured: give --kubeconfig FILE, or name one in the \
                 configuration file (KUBECONFIG is not read)"
            )));
        }
        Kube::connect(&self.settings.kube, Clock::Host).await.map_err(|e| ActionError::failed(format!("{what}: {e}")))
    }

    /// A line on standard error.
    pub fn say(&self, text: &str) {
        self.out.message(text);
    }

    /// A line on standard error with `-v` only.
    pub fn say_more(&self, text: &str) {
        if self.verbose {
            self.out.message(text);
        }
    }
}
