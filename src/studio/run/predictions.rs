//! What the network answers while it trains: asked of the run as often as that allows, and made into a view on a
//! thread of its own.

use crate::model::Model;
use crate::studio::jobs::background::Background;
use crate::studio::run::training::Training;
use crate::studio::view_models::predictions::{AnsweredQuery, PredictionsView, query, view};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The shortest time between two questions.
const EVERY: Duration = Duration::from_millis(200);
/// After this long a question counts as lost.
const LOST: Duration = Duration::from_secs(30);

/// What the Predictions tab shows.
pub struct Predictions {
    maker: Background<AnsweredQuery, PredictionsView>,
    pub view: Option<Arc<PredictionsView>>,
    /// Rises with every view.
    pub generation: u64,
    /// The run that the view belongs to.
    run: u64,
    model: Option<Arc<Model>>,
    /// When the question that has no answer yet was asked.
    waiting: Option<Instant>,
    asked: Option<Instant>,
}

impl Predictions {
    /// Nothing asked yet; `wake` asks for a frame.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>) -> std::io::Result<Self> {
        let maker = Background::spawn("stepgraph-predictions", wake, |q: AnsweredQuery| view(&q))?;
        Ok(Self { maker, view: None, generation: 0, run: 0, model: None, waiting: None, asked: None })
    }

    /// Takes in answers, and asks where `shown` says that somebody looks and the network has changed since.
    pub fn follow(&mut self, training: &mut Training, shown: bool) {
        if self.run != training.run {
            (self.run, self.view, self.model, self.waiting, self.asked) = (training.run, None, None, None, None);
            self.generation += 1;
        }
        if let Some(answer) = training.query_answer.take() {
            self.waiting = None;
            let source = training.preset.as_ref().and_then(|p| p.data.as_ref()).map(|d| d.source.clone());
            if let (Some((set, split)), Some(source), Some(model)) = (&training.data, source, self.model(training)) {
                let (set, split) = (Arc::clone(set), Arc::clone(split));
                let (run, maybe_trained) = (self.run, training.maybe_trained);
                self.maker.ask(AnsweredQuery { run, model, source, set, split, maybe_trained, answer });
            }
        }
        if let Some(view) = self.maker.poll()
            && view.run == self.run
        {
            self.view = Some(Arc::new(view));
            self.generation += 1;
        }
        if shown {
            self.ask(training);
        }
    }

    fn model(&mut self, training: &Training) -> Option<Arc<Model>> {
        if self.model.is_none() {
            self.model = training.compiled.as_ref().map(|c| Arc::new(c.model.clone()));
        }
        self.model.clone()
    }

    fn ask(&mut self, training: &Training) {
        let fresh = self.view.as_ref().is_some_and(|v| v.step == training.done());
        let waits = self.waiting.is_some_and(|t| t.elapsed() < LOST) || self.maker.is_busy();
        let soon = training.is_running() && self.asked.is_some_and(|t| t.elapsed() < EVERY);
        if fresh || waits || soon {
            return;
        }
        let Some(source) = training.preset.as_ref().and_then(|p| p.data.as_ref()).map(|d| d.source.clone()) else {
            return;
        };
        if let (Some((set, split)), Some(model)) = (&training.data, self.model(training))
            && training.query(query(&model, set, split, &source))
        {
            (self.waiting, self.asked) = (Some(Instant::now()), Some(Instant::now()));
        }
    }
}
