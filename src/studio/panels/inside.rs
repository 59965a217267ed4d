//! Pages that show the inside of the network for one sample: the choice of sample and layer, and the result.

use crate::studio::commands::{AnswersPage, CommandQueue, PredictionsCommand, Selection, UiCommand};
use crate::studio::panels::token_loss::{TokensPage, tokens_ui};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::panels::predictions::PredictionsPanelView;
use crate::studio::view_models::sequences::inside::{AttentionView, Found, InsideView, StatesView};
use crate::studio::widgets::button::{empty_ui, icon_ui, weak_ui};
use crate::studio::widgets::heat_map::{HeatMapSpec, HeatMapState, heat_map_ui};
use egui::{ComboBox, DragValue, RichText, Ui};

/// The state of the pages.
#[derive(Default)]
pub struct InsidePages {
    tokens: TokensPage,
    attention: HeatMapState,
    states: HeatMapState,
}

/// Shows a page about the inside of the network.
pub fn inside_ui(
    ui: &mut Ui,
    view: &PredictionsPanelView<'_>,
    page: AnswersPage,
    state: &mut InsidePages,
    commands: &mut CommandQueue,
) {
    let push = |commands: &mut CommandQueue, command| commands.push(UiCommand::Predictions(command));
    if let Some((place, count, sample)) = view.sample {
        ui.horizontal(|ui| {
            if let Some(place) = stepper_ui(ui, "sample", view.part, place, count) {
                push(commands, PredictionsCommand::LookAt(place));
            }
            weak_ui(ui, format!("number {sample} of the data"));
        });
    }
    if view.layer.is_some() {
        ui.horizontal(|ui| layer_ui(ui, view, page, commands));
    }
    // The result for another layer or sample stays until the answer arrives, with its own title.
    let found = view.inside.filter(|inside| belongs(page, inside));
    let Some(inside) = found else {
        return empty_ui(
            ui,
            "Looking inside…",
            "This is computed between two steps; while a run trains, it takes at most 3% of its time.",
        );
    };
    let is_current = view.sample.is_some_and(|(_, _, sample)| sample == inside.asked.sample)
        && view.layer.map(|layer| &layer.path) == inside.asked.layer.as_ref();
    figures_ui(ui, view, inside, is_current);
    ui.add_space(4.0);
    match &inside.found {
        Found::Tokens(tokens) => tokens_ui(ui, tokens, &mut state.tokens),
        Found::Attention(attention) => attention_ui(ui, attention, view, &mut state.attention),
        Found::States(states) => states_ui(ui, states, view, &mut state.states),
        Found::Nothing => empty_ui(ui, "Nothing found", "This sample has nothing to show here; choose another one."),
    }
}

/// Whether the result belongs to a page.
const fn belongs(page: AnswersPage, inside: &InsideView) -> bool {
    matches!(
        (page, &inside.found),
        (AnswersPage::Tokens, Found::Tokens(_))
            | (AnswersPage::Attention, Found::Attention(_))
            | (AnswersPage::States, Found::States(_))
            | (_, Found::Nothing)
    )
}

/// A choice of one among `count` by its number from 1 on; returns the index of a newly chosen one.
pub fn stepper_ui(ui: &mut Ui, noun: &str, part: &str, place: usize, count: usize) -> Option<usize> {
    ui.spacing_mut().item_spacing.x = 4.0;
    let mut chosen = None;
    let back = ui.add_enabled_ui(place > 0, |ui| {
        icon_ui(ui, icons::BACK, &format!("Previous {noun}"), "Shows the previous one")
    });
    if back.inner.clicked() {
        chosen = place.checked_sub(1);
    }
    let mut number = place + 1;
    let value = DragValue::new(&mut number).range(1..=count.max(1)).speed(0.2);
    if ui.name_inputs(format!("{noun} number"), |ui| ui.add(value)).changed() {
        chosen = Some(number - 1);
    }
    let part = if part.is_empty() { String::new() } else { format!("{part} ") };
    weak_ui(ui, format!("of {} {part}{noun}s", format::exact(count as u64)));
    let on = ui.add_enabled_ui(place + 1 < count, |ui| {
        icon_ui(ui, icons::FORWARD, &format!("Next {noun}"), "Shows the next one")
    });
    if on.inner.clicked() {
        chosen = Some(place + 1);
    }
    ui.add_space(8.0);
    chosen
}

/// The choice of the layer, which is the selection of all views, and of the head.
fn layer_ui(ui: &mut Ui, view: &PredictionsPanelView<'_>, page: AnswersPage, commands: &mut CommandQueue) {
    let Some(own) = view.layer else { return };
    let combo = ComboBox::from_id_salt("looked layer").selected_text(&own.label);
    let response = combo.show_ui(ui, |ui| {
        for layer in view.facts.layers(page) {
            if ui.selectable_label(layer.path == own.path, &layer.label).clicked() {
                commands.push(UiCommand::Select(Selection::Layer(layer.path.clone())));
            }
        }
    });
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Layer that is shown"));
    if own.heads > 1 {
        let head = view.head.min(own.heads - 1);
        if let Some(head) = stepper_ui(ui, "head", "", head, own.heads) {
            commands.push(UiCommand::Predictions(PredictionsCommand::ShowHead(head)));
        }
    }
}

fn figures_ui(ui: &mut Ui, view: &PredictionsPanelView<'_>, inside: &InsideView, is_current: bool) {
    ui.horizontal_wrapped(|ui| {
        let text = match &inside.found {
            Found::Tokens(tokens) => tokens.figures(),
            Found::Attention(found) => {
                format!("largest weight of a query {} on average", format::percent(f64::from(found.sharpness)))
            }
            Found::States(found) => format!("states from -{0} to {0}", format::number(f64::from(found.scale))),
            Found::Nothing => String::new(),
        };
        ui.label(RichText::new(text).font(theme::strong(13.0)));
        weak_ui(ui, format!("at step {}", format::exact(inside.step)))
            .on_hover_text(format!("Answered in {}", format::micros(inside.took_us)));
        if !is_current {
            weak_ui(ui, format!("of sample {}, until the answer comes", inside.asked.sample));
        } else if view.is_running {
            weak_ui(ui, "follows the training")
                .on_hover_text("Updated a few times a second, in at most 3% of the run's time");
        }
    });
}

fn attention_ui(ui: &mut Ui, found: &AttentionView, view: &PredictionsPanelView<'_>, state: &mut HeatMapState) {
    let mask = if found.causal { "; grey: masked, as it comes later" } else { "" };
    weak_ui(ui, format!("queries down, keys across; the stronger the colour, the larger the weight{mask}"));
    let name = format!("Attention of head {}", view.head + 1);
    let spec = HeatMapSpec {
        name: &name,
        columns: &found.names,
        rows: &found.names,
        is_signed: false,
        is_square: true,
        generation: view.generation,
        about: &|cell| found.about(cell),
    };
    heat_map_ui(ui, &found.map, &spec, state);
}

fn states_ui(ui: &mut Ui, found: &StatesView, view: &PredictionsPanelView<'_>, state: &mut HeatMapState) {
    let both = if found.directions > 1 { "; the lower half reads from the end" } else { "" };
    weak_ui(ui, format!("units down, positions across; blue below 0, orange above{both}"));
    let spec = HeatMapSpec {
        name: "Hidden states",
        columns: &found.names,
        rows: &[],
        is_signed: true,
        is_square: false,
        generation: view.generation,
        about: &|cell| found.about(cell),
    };
    heat_map_ui(ui, &found.map, &spec, state);
}
