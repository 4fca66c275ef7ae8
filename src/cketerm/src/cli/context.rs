//! Context of every subcommand: settings, the connection if it needs one, and the output.

use std::sync::Once;

use cketerm_actions::{ActionError, Operator};
use cketerm_clients::{kubernetes::Kube, store::Store};
use cketerm_model::clock::Clock;

use super::{
    options::{AskedOutput, Globals, Output},
    output::Out,
};
use crate::config::Settings;

/// Context of one run of the program.
#[derive(Debug)]
pub struct Context {
    /// Local settings.
    pub settings: Settings,
    /// Output for data and messages.
    pub out: Out,
    output: Option<AskedOutput>,
    verbose: bool,
    warned: Once,
}

impl Context {
    /// Creates a context for these settings and options.
    pub fn new(settings: Settings, globals: &Globals) -> Self {
        Self { settings, out: Out, output: globals.output, verbose: globals.verbose > 0, warned: Once::new() }
    }

    /// Returns the same for other settings.
    #[must_use]
    pub fn with_settings(&self, settings: Settings) -> Self {
        Self { settings, out: Out, output: self.output, verbose: self.verbose, warned: Once::new() }
    }

    /// Returns the requested form of output, or the subcommand's default.
    pub fn output(&self, default: Output) -> Output {
        match self.output {
            Some(AskedOutput::Table | AskedOutput::Simple) => Output::Table,
            Some(AskedOutput::Json) => Output::Json,
            Some(AskedOutput::Yaml) => Output::Yaml,
            None => default,
        }
    }

    /// Reports whether the user requested exactly the columns of `ckecli`.
    pub fn simple(&self) -> bool {
        self.output == Some(AskedOutput::Simple)
    }

    /// Warns once, on standard error, if etcd is the built-in default.
    pub fn warn_of_default_endpoint(&self) {
        if let Some(warning) = self.settings.default_endpoint_warning() {
            self.warned.call_once(|| self.print_message(&format!("warning: {warning}")));
        }
    }

    /// Connects to etcd.
    pub async fn store(&self) -> Result<Store, ActionError> {
        self.warn_of_default_endpoint();
        Ok(Box::pin(Store::connect(&self.settings.etcd, Clock::host())).await?)
    }

    /// Returns an operator that uses only etcd and never queries Kubernetes.
    pub async fn operator(&self) -> Result<Operator, ActionError> {
        Ok(Operator::new(self.store().await?, None))
    }

    /// Returns the operator for subcommands that start work. If Kubernetes is configured, such actions are refused for
    /// the etcd of another cluster, and they record the UID of the machine's Node. A Kubernetes that does not answer
    /// causes a warning and prevents nothing (STO-25).
    pub async fn operator_with_kube(&self) -> Result<Operator, ActionError> {
        if self.settings.kube.is_none() {
            return self.operator().await;
        }
        let kube = match Kube::connect(&self.settings.kube, Clock::host()).await {
            Ok(kube) => Some(kube),
            Err(e) => {
                self.print_message(&format!("warning: continuing without Kubernetes: {e}"));
                None
            }
        };
        Ok(Operator::new(self.store().await?, kube))
    }

    /// Connects to Kubernetes, for the subcommands that need it.
    pub async fn kube(&self, what: &str) -> Result<Kube, ActionError> {
        if self.settings.kube.is_none() {
            return Err(ActionError::misused(format!(
                "{what} needs Kubernetes, which is not configured: give --kubeconfig FILE, or set it in the \
                 configuration file (KUBECONFIG is not read)"
            )));
        }
        Kube::connect(&self.settings.kube, Clock::host()).await.map_err(|e| ActionError::failed(format!("{what}: {e}")))
    }

    /// Prints a line on standard error.
    pub fn print_message(&self, text: &str) {
        self.out.message(text);
    }

    /// Prints a line on standard error, with `-v` only.
    pub fn print_verbose(&self, text: &str) {
        if self.verbose {
            self.out.message(text);
        }
    }
}
