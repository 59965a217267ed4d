//! The data set of the document, loaded on a separate thread when it is first shown.

use crate::data::{DataError, Request};
use crate::model::{DataSpec, Diagnostic, Model, Preset};
use crate::studio::jobs::background::Background;
use crate::studio::view_models::data::{DataKey, DataView, load_view};
use crate::tensor::Shape;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The interval at which files that could not be used are checked again.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What to load.
struct Order {
    key: DataKey,
    /// True if this failed before: it is loaded again only if its files have changed.
    is_retry: bool,
}

/// The data, or why it cannot be used; `None` if nothing has changed since the failure.
type Loaded = Option<Result<DataView, DataError>>;

/// Size and time of each file of the data; `None` if it does not exist.
type Stamps = Vec<Option<(u64, Option<SystemTime>)>>;

fn stamps_of(key: &DataKey) -> Stamps {
    let stamp = |path: &std::path::Path| {
        let found = std::fs::metadata(key.base.join(path)).ok()?;
        Some((found.len(), found.modified().ok()))
    };
    key.spec.source.paths().iter().map(|path| stamp(path)).collect()
}

/// Loads the requested data, and remembers the state of its files if that fails.
fn loading() -> impl FnMut(Order) -> Loaded + Send {
    let mut failed: Option<(DataKey, Stamps)> = None;
    move |order| {
        let now = Some((order.key.clone(), stamps_of(&order.key)));
        if order.is_retry && failed == now {
            return None;
        }
        let found = load_view(&order.key);
        failed = now.filter(|_| found.is_err());
        Some(found)
    }
}

/// What the Data tab shows.
pub struct Samples {
    loader: Background<Order, Loaded>,
    asked: Option<DataKey>,
    /// When the files of data that cannot be loaded were last checked.
    tried: Option<Instant>,
    /// The newest data set that could be loaded, and whether it is that of the document.
    pub view: Option<Arc<DataView>>,
    pub is_current: bool,
    /// Why the document's data cannot be loaded.
    pub problem: Option<DataError>,
    /// Increases with every view.
    pub generation: u64,
}

/// What the data of a document is loaded from and for; `None` if it names none.
#[must_use]
pub fn key_of(preset: &Preset, model: Option<&Model>, base: PathBuf) -> Option<DataKey> {
    preset.data.as_ref().map(|spec| DataKey {
        spec: spec.clone(),
        request: Request {
            inputs: preset.input.inputs.clone(),
            output: model.map_or_else(|| Shape::from([1]), |m| m.output.clone()),
            loss: preset.loss,
            seed: preset.train.map_or(0, |t| t.seed),
        },
        has_network: model.is_some(),
        base,
    })
}

impl Samples {
    /// Nothing loaded yet; `wake` requests a frame.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>) -> std::io::Result<Self> {
        let loader = Background::spawn("stepgraph-data", wake, loading())?;
        Ok(Self { loader, asked: None, tried: None, view: None, is_current: false, problem: None, generation: 0 })
    }

    /// Requests this data, unless it is loaded already, or again if its files have changed since a failure.
    pub fn want(&mut self, key: Option<DataKey>) {
        if self.asked == key {
            let may_be_fixed = self.problem.as_ref().is_some_and(|p| !matches!(p, DataError::Cancelled));
            let is_due = may_be_fixed && self.tried.is_none_or(|t| t.elapsed() >= RETRY_AFTER);
            if let Some(key) = key.filter(|_| is_due && !self.loader.is_busy()) {
                self.tried = Some(Instant::now());
                self.loader.ask(Order { key, is_retry: true });
            }
            return;
        }
        self.asked.clone_from(&key);
        // A message about other data does not apply to this data.
        (self.is_current, self.problem, self.tried) = (false, None, Some(Instant::now()));
        match key {
            Some(key) => self.loader.ask(Order { key, is_retry: false }),
            None => self.view = None,
        }
    }

    /// Requests the data again, because a run has found something wrong with it.
    pub fn reload(&mut self) {
        if self.problem.is_none() {
            (self.asked, self.is_current) = (None, false);
        }
    }

    /// Receives results from the thread.
    pub fn poll(&mut self) {
        match self.loader.poll() {
            None | Some(None) => {}
            Some(_) if self.asked.is_none() => {}
            Some(Some(Ok(view))) => {
                (self.view, self.problem, self.is_current) = (Some(Arc::new(view)), None, true);
                self.generation += 1;
            }
            Some(Some(Err(why))) => (self.problem, self.is_current) = (Some(why), false),
        }
    }

    /// What is wrong with the data of a document, if anything: it cannot be loaded, or the network cannot be trained on
    /// it. The outer `None` means unknown: the data of `key`, that of the current document, was not loaded.
    pub fn verdict(&self, preset: &Preset, key: impl FnOnce() -> Option<DataKey>) -> Option<Option<Diagnostic>> {
        let view = self.view.as_ref().filter(|_| self.is_current);
        if (self.problem.is_none() && view.is_none()) || self.asked != key() {
            return None;
        }
        let misfit = view.and_then(|v| v.misfit.as_deref());
        let of_batch = || {
            let (train, batch) = (view?.split.train.len(), preset.input.batch);
            (train < batch).then(|| DataError::Batch { train, batch }.mistake(preset))
        };
        Some(self.problem.as_ref().or(misfit).map(|error| error.mistake(preset)).or_else(of_batch))
    }

    /// The number of classes in this data, if it is the data that was loaded.
    #[must_use]
    pub fn classes(&self, data: &DataSpec) -> Option<usize> {
        let view =
            self.view.as_ref().filter(|_| self.is_current && self.asked.as_ref().is_some_and(|k| k.spec == *data))?;
        Some(view.classes.len()).filter(|n| *n > 0)
    }

    /// Cancels loading; other data is loaded when it is requested.
    pub fn cancel(&mut self) {
        self.loader.cancel();
        self.problem = Some(DataError::Cancelled);
    }

    /// True while data is being loaded.
    #[must_use]
    pub const fn is_loading(&self) -> bool {
        self.asked.is_some() && self.problem.is_none() && self.loader.is_busy()
    }
}
