//! A text that the network of the run writes: the prompt, how tokens are drawn, and the result.

use crate::studio::commands::{CommandQueue, PredictionsCommand, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::panels::predictions::PredictionsPanelView;
use crate::studio::view_models::sequences::writing::WritingState;
use crate::studio::widgets::button::{command_ui, weak_ui};
use crate::studio::widgets::field::problem_ui;
use crate::train::{Generation, Sampling};
use egui::text::{LayoutJob, TextFormat};
use egui::{DragValue, Key, Label, RichText, ScrollArea, TextEdit, Ui};

/// The state of the page.
pub struct WritingPage {
    prompt: String,
    temperature: f64,
    /// 0 for all tokens.
    top_k: usize,
    top_p: f64,
    seed: u64,
    tokens: usize,
}

impl Default for WritingPage {
    fn default() -> Self {
        let Sampling { temperature, top_p, seed, .. } = Sampling::default();
        Self { prompt: String::new(), temperature, top_k: 0, top_p, seed, tokens: Generation::TOKENS }
    }
}

/// The longest text, in tokens: short enough to be drawn again for every new token.
const LONGEST: usize = 4000;

impl WritingPage {
    fn asked(&self) -> Generation {
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: (self.top_k > 0).then_some(self.top_k),
            top_p: self.top_p,
            seed: self.seed,
        };
        Generation { prompt: self.prompt.clone(), tokens: Some(self.tokens), sampling, stop: None }
    }
}

/// A number with its name before it.
fn number_ui(ui: &mut Ui, name: &str, about: &str, value: DragValue<'_>) {
    ui.scope(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        ui.horizontal(|ui| {
            weak_ui(ui, name).on_hover_text(about);
            ui.name_inputs(name, |ui| ui.add(value)).on_hover_text(about);
        });
    });
}

/// The prompt: a single line for additions, several for other texts. True if Enter was pressed.
fn prompt_ui(ui: &mut Ui, is_line: bool, prompt: &mut String) -> bool {
    let edit = if is_line {
        TextEdit::singleline(prompt).hint_text("an addition, such as 37+85=")
    } else {
        TextEdit::multiline(prompt).hint_text("a text that the network is to continue").desired_rows(3)
    };
    let edit = edit.desired_width(f32::INFINITY).font(theme::mono()).id_salt("prompt");
    let response = ui.name_inputs("prompt", |ui| ui.add(edit));
    // Otherwise the hint would be its name.
    ui.ctx().accesskit_node_builder(response.id, |node| node.set_label("prompt"));
    is_line && response.lost_focus() && ui.input(|i| i.key_pressed(Key::Enter))
}

/// Shows the page.
pub fn writing_ui(ui: &mut Ui, view: &PredictionsPanelView<'_>, page: &mut WritingPage, commands: &mut CommandQueue) {
    let is_entered = prompt_ui(ui, view.facts.adds, &mut page.prompt);
    ui.horizontal_wrapped(|ui| {
        let temperature = DragValue::new(&mut page.temperature).range(0.0..=10.0).speed(0.01).max_decimals(2);
        let about = "1 keeps the network's probabilities, less prefers likely tokens, and 0 takes the likeliest";
        number_ui(ui, "temperature", about, temperature);
        let all = |n: f64, _: std::ops::RangeInclusive<usize>| if n < 1.0 { "all".to_owned() } else { n.to_string() };
        let read = |text: &str| if text.trim() == "all" { Some(0.0) } else { text.trim().parse().ok() };
        let top_k = DragValue::new(&mut page.top_k).range(0..=1_000_000).speed(0.1);
        let top_k = top_k.custom_formatter(all).custom_parser(read);
        number_ui(ui, "top-k", "Only this number of the likeliest tokens can be drawn; 0 for all", top_k);
        let top_p = DragValue::new(&mut page.top_p).range(0.01..=1.0).speed(0.01).max_decimals(2);
        number_ui(
            ui,
            "top-p",
            "Only the smallest set of likeliest tokens whose probabilities reach this sum can be drawn",
            top_p,
        );
        number_ui(ui, "seed", "A different seed draws different tokens", DragValue::new(&mut page.seed));
        let tokens = DragValue::new(&mut page.tokens).range(1..=LONGEST);
        number_ui(ui, "length", "The largest number of tokens that are written", tokens);
    });
    ui.horizontal_wrapped(|ui| {
        if view.writing.is_busy() {
            command_ui(ui, UiCommand::Predictions(PredictionsCommand::StopWriting), true, commands);
        }
        let write = UiCommand::Predictions(PredictionsCommand::Write(Box::new(page.asked())));
        commands.extend((is_entered && view.can_write).then(|| write.clone()));
        command_ui(ui, write, view.can_write, commands);
        weak_ui(ui, view.writing.status());
        if view.is_running && view.writing.is_busy() {
            let message = "Writing takes at most 3% of the run's time";
            weak_ui(ui, "each token from the newest weights").on_hover_text(message);
        }
    });
    if let WritingState::Failed(why) = &view.writing.state {
        problem_ui(ui, why, "");
    }
    for note in &view.writing.notes {
        weak_ui(ui, note);
    }
    ui.add_space(4.0);
    text_ui(ui, view);
}

/// The text that was written, after its prompt.
fn text_ui(ui: &mut Ui, view: &PredictionsPanelView<'_>) {
    let c = theme::colors(ui);
    let writing = view.writing;
    if matches!(writing.state, WritingState::Nothing) {
        weak_ui(
            ui,
            "Nothing is written yet. Type the start of a text and press Write; this also works while the run trains.",
        );
        return;
    }
    let mut job = LayoutJob::default();
    let mut add = |text: &str, color| job.append(text, 0.0, TextFormat::simple(theme::mono(), color));
    add(&writing.prompt, c.weak);
    add(&writing.text, c.text);
    theme::card(ui, false).show(ui, |ui| {
        let area = ScrollArea::vertical().id_salt("written").auto_shrink([false, true]).stick_to_bottom(true);
        area.max_height((ui.available_height() - 8.0).max(60.0)).show(ui, |ui| {
            ui.set_min_width(ui.available_width());
            let label = ui.add(Label::new(job).wrap().selectable(true));
            let message = format!("Written: {}{}", writing.prompt, writing.text);
            label.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &message));
            if writing.text.is_empty() && writing.is_busy() {
                ui.label(RichText::new("…").color(c.weak));
            }
        });
    });
}
