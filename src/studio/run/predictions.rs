//! The network's predictions during training: the run is queried as often as its time limit allows, and a separate
//! thread makes the view.

use crate::model::{DataSource, LayerPath, Model};
use crate::studio::commands::{AnswersPage, PredictionsCommand};
use crate::studio::jobs::background::Background;
use crate::studio::run::training::Training;
use crate::studio::view_models::predictions::{AnsweredQuery, PredictionsView, asked_part, query, view};
use crate::studio::view_models::sequences::SequenceFacts;
use crate::studio::view_models::sequences::inside::{Found, InsideView};
use crate::train::{Command, Inside, Look};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The shortest time between two queries.
const EVERY: Duration = Duration::from_millis(200);
/// The time after which a query is considered lost.
const LOST: Duration = Duration::from_secs(30);

/// The views that are made from answers.
enum Made {
    Answers(Box<PredictionsView>),
    Inside(Box<InsideView>),
}

/// Makes the view of an answer, or of the inside of the network if that was requested.
fn make(question: &AnsweredQuery) -> Made {
    let AnsweredQuery { run, model, data: (set, _), answer, .. } = question;
    match (&answer.question.inside, &answer.inside) {
        (Some(asked), Some(insight)) => Made::Inside(Box::new(InsideView {
            run: *run,
            step: answer.step,
            asked: asked.clone(),
            found: Found::of(model, set, asked.sample, insight),
            took_us: answer.took_us,
        })),
        _ => Made::Answers(Box::new(view(question))),
    }
}

/// What the Predictions tab shows.
pub struct Predictions {
    maker: Background<AnsweredQuery, Made>,
    pub view: Option<Arc<PredictionsView>>,
    /// What was found inside the network for one sample.
    pub inside: Option<Arc<InsideView>>,
    /// Increases with every view.
    pub generation: u64,
    /// The page that the user chose.
    pub chosen: Option<AnswersPage>,
    /// The sample whose inside is shown, by its position among the requested ones, and the attention head.
    pub place: usize,
    pub head: usize,
    /// The pages that are available for a network that reads sequences.
    pub facts: SequenceFacts,
    /// The run that the view belongs to.
    run: u64,
    model: Option<Arc<Model>>,
    /// When the unanswered query was sent.
    waiting: Option<Instant>,
    asked: Option<Instant>,
}

impl Predictions {
    /// No query yet; `wake` requests a frame.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>) -> std::io::Result<Self> {
        let maker = Background::spawn("stepgraph-predictions", wake, |q: AnsweredQuery| make(&q))?;
        Ok(Self {
            maker,
            view: None,
            inside: None,
            generation: 0,
            chosen: None,
            place: 0,
            head: 0,
            facts: SequenceFacts::default(),
            run: 0,
            model: None,
            waiting: None,
            asked: None,
        })
    }

    /// Performs a command of the tab.
    pub fn perform(&mut self, command: PredictionsCommand, training: &mut Training) {
        match command {
            PredictionsCommand::Show(page) => self.chosen = Some(page),
            PredictionsCommand::LookAt(place) => self.place = place,
            PredictionsCommand::ShowHead(head) => self.head = head,
            PredictionsCommand::Write(asked) => {
                training.writing.ask();
                training.send(Command::Write(*asked));
            }
            PredictionsCommand::StopWriting => training.send(Command::StopWriting),
        }
    }

    /// The page on screen: the chosen one, or the first of the most informative ones for this network.
    #[must_use]
    pub fn page(&self) -> Option<AnswersPage> {
        let first = || AnswersPage::ALL.into_iter().find(|page| self.facts.offers(*page));
        self.chosen.or_else(first)
    }

    /// The sample whose inside is shown: its index among the possible ones, their number, and its own number.
    #[must_use]
    pub fn sample(&self, training: &Training) -> Option<(usize, usize, u32)> {
        let (_, split) = training.data.as_ref()?;
        let (all, _) = asked_part(split);
        let place = self.place.min(all.len().checked_sub(1)?);
        Some((place, all.len(), all[place]))
    }

    /// Receives answers, and sends a query if the tab is shown (`shown`) and the network has changed; `layer` is the
    /// selected layer.
    pub fn follow(&mut self, training: &mut Training, shown: bool, layer: Option<&LayerPath>) {
        if self.run != training.run {
            (self.run, self.view, self.model, self.waiting, self.asked) = (training.run, None, None, None, None);
            (self.inside, self.place, self.facts) = (None, 0, SequenceFacts::default());
            self.generation += 1;
        }
        if let Some(answer) = training.query_answer.take() {
            self.waiting = None;
            let source = source_of(training);
            if let (Some((set, split)), Some(source), Some(model)) = (&training.data, source, self.model(training)) {
                let data = (Arc::clone(set), Arc::clone(split));
                let (run, maybe_trained) = (self.run, training.maybe_trained);
                self.maker.ask(AnsweredQuery { run, model, source, data, maybe_trained, answer });
            }
        }
        match self.maker.poll() {
            Some(Made::Answers(view)) if view.run == self.run => {
                self.view = Some(Arc::from(view));
                self.generation += 1;
            }
            Some(Made::Inside(view)) if view.run == self.run => {
                self.inside = Some(Arc::from(view));
                self.generation += 1;
            }
            _ => {}
        }
        if shown {
            self.ask(training, layer);
        }
    }

    fn model(&mut self, training: &Training) -> Option<Arc<Model>> {
        if self.model.is_none() {
            self.model = training.compiled.as_ref().map(|c| Arc::new(c.model.clone()));
            if let (Some(model), Some(source), Some((set, _))) = (&self.model, source_of(training), &training.data) {
                self.facts = SequenceFacts::of(model, set, &source);
                // A page that was chosen for another network is left if it is not available for this network.
                self.chosen = self.chosen.filter(|page| self.facts.offers(*page));
            }
        }
        self.model.clone()
    }

    /// What the page on screen shows of the inside of the network; `None` if it shows predictions.
    fn wanted(&self, training: &Training, selected: Option<&LayerPath>) -> Option<Inside> {
        let page = self.page().filter(|page| page.looks_inside() && self.facts.offers(*page))?;
        let (_, _, sample) = self.sample(training)?;
        let layer = self.facts.layer(page, selected);
        let head = layer.map_or(0, |layer| self.head.min(layer.heads.saturating_sub(1)));
        Some(Inside { sample, layer: layer.map(|layer| layer.path.clone()), head })
    }

    fn ask(&mut self, training: &Training, selected: Option<&LayerPath>) {
        let model = self.model(training);
        // Texts have a separate command.
        if self.page() == Some(AnswersPage::Writing) && self.facts.writes {
            return;
        }
        let wanted = self.wanted(training, selected);
        let found = self.inside.as_ref().filter(|view| wanted.as_ref() == Some(&view.asked)).map(|view| view.step);
        let step = if wanted.is_some() { found } else { self.view.as_ref().map(|view| view.step) };
        let fresh = step == Some(training.done());
        let waits = self.waiting.is_some_and(|t| t.elapsed() < LOST) || self.maker.is_busy();
        // The answer about another sample is no longer needed.
        let soon = step.is_some() && training.is_running() && self.asked.is_some_and(|t| t.elapsed() < EVERY);
        if fresh || waits || soon {
            return;
        }
        let (Some((set, split)), Some(model), Some(source)) = (&training.data, model, source_of(training)) else {
            return;
        };
        let question = match wanted {
            Some(inside) => Look { inside: Some(inside), ..Look::default() },
            None => query(&model, set, split, &source),
        };
        if training.query(question) {
            (self.waiting, self.asked) = (Some(Instant::now()), Some(Instant::now()));
        }
    }
}

/// The source of the data that a run trains on.
fn source_of(training: &Training) -> Option<DataSource> {
    training.preset.as_ref().and_then(|p| p.data.as_ref()).map(|d| d.source.clone())
}
