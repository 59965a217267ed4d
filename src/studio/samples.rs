//! The data set of the document, loaded on a thread of its own when somebody looks at it.

use super::background::Background;
use super::view_models::data::{DataKey, DataView, load_view};
use crate::data::DataError;
use crate::model::{DataSpec, LossSpec, Model, Preset};
use std::path::PathBuf;
use std::sync::Arc;

/// What the Data room shows.
pub struct Samples {
    loader: Background<DataKey, Result<DataView, String>>,
    asked: Option<DataKey>,
    /// The newest data set that could be loaded, and whether it is that of the document.
    pub view: Option<Arc<DataView>>,
    pub is_current: bool,
    /// Why the document's data cannot be loaded.
    pub problem: Option<String>,
    /// Rises with every view.
    pub generation: u64,
}

/// What the data of a document is loaded from and for; `None` where it names none.
#[must_use]
pub fn key_of(preset: &Preset, model: Option<&Model>, base: PathBuf) -> Option<DataKey> {
    preset.data.as_ref().map(|spec| DataKey {
        spec: spec.clone(),
        input: preset.input.shape.clone(),
        output: model.map(|m| m.output.clone()),
        wants_classes: matches!(preset.loss, LossSpec::SoftmaxCrossEntropy { .. }),
        seed: preset.train.map_or(0, |t| t.seed),
        base,
    })
}

impl Samples {
    /// Nothing loaded yet; `wake` asks for a frame.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>) -> std::io::Result<Self> {
        let loader = Background::spawn("stepgraph-data", wake, |key: DataKey| load_view(&key))?;
        Ok(Self { loader, asked: None, view: None, is_current: false, problem: None, generation: 0 })
    }

    /// Has this data loaded, where it is not that already.
    pub fn want(&mut self, key: Option<DataKey>) {
        if self.asked == key {
            return;
        }
        self.asked.clone_from(&key);
        self.is_current = false;
        match key {
            Some(key) => self.loader.ask(key),
            None => (self.view, self.problem) = (None, None),
        }
    }

    /// Takes in what the thread has to tell.
    pub fn poll(&mut self) {
        match self.loader.poll() {
            None => {}
            Some(_) if self.asked.is_none() => {}
            Some(Ok(view)) => {
                (self.view, self.problem, self.is_current) = (Some(Arc::new(view)), None, true);
                self.generation += 1;
            }
            Some(Err(why)) => (self.problem, self.is_current) = (Some(why), false),
        }
    }

    /// Why the data that was loaded does not fit the network; `key` is that of the document as it is now.
    pub fn misfit(&self, key: impl FnOnce() -> Option<DataKey>) -> Option<&DataError> {
        let misfit = self.view.as_ref().filter(|_| self.is_current)?.misfit.as_ref()?;
        (self.asked == key()).then_some(misfit)
    }

    /// The number of classes that were found in this data, where it is what was loaded.
    #[must_use]
    pub fn classes(&self, data: &DataSpec) -> Option<usize> {
        let view =
            self.view.as_ref().filter(|_| self.is_current && self.asked.as_ref().is_some_and(|k| k.spec == *data))?;
        Some(view.classes.len()).filter(|n| *n > 0)
    }

    /// Waits for the data no more; other data is loaded when it is asked for.
    pub fn cancel(&mut self) {
        self.loader.cancel();
        self.problem = Some("Loading was cancelled. Change a field of the data to load it again.".to_owned());
    }

    /// True while data is being loaded.
    #[must_use]
    pub const fn is_loading(&self) -> bool {
        self.asked.is_some() && self.loader.is_busy()
    }
}
