//! The pages of the Help menu: every shortcut, and information about the program.

use crate::studio::commands::UiCommand;
use crate::studio::commands::shortcut_text::keys_text;
use crate::studio::theme;
use crate::studio::view_models::panels::help::HelpView;
use crate::studio::widgets::button::{answers_ui, text_line_ui, weak_ui};
use egui::{RichText, ScrollArea, Ui};

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Shortcuts,
    About,
}

/// The open page, if any.
#[derive(Default)]
pub struct Help {
    page: Option<Page>,
    search: String,
    /// True until the search field has the focus.
    fresh: bool,
}

impl Help {
    /// Opens a page.
    pub fn open(&mut self, page: Page) {
        *self = Self { page: Some(page), search: String::new(), fresh: true };
    }
}

/// The actions of the mouse and the keys in particular places: the place, and the keys with their actions.
const IN_PLACE: [(&str, &[(&str, &str)]); 9] = [
    (
        "Arena",
        &[
            ("wheel", "Zooms around the pointer"),
            ("Shift+wheel", "Zooms in time only"),
            ("drag", "Pans"),
            ("Shift+drag", "Selects a range of bytes"),
            ("double click", "Shows the whole arena"),
            ("Left, Right", "Moves the scrubber by one operation, while the map has the focus"),
        ],
    ),
    (
        "Step graph",
        &[("Up, Down, Page Up, Page Down, Home, End", "Moves through the rows, while the table has the focus")],
    ),
    (
        "Layers",
        &[
            ("Up, Down, Home, End", "Selects a layer, while the list has the focus"),
            ("Left", "Folds a block or a sequence of equal layers, and moves to its first line"),
            ("Right", "Unfolds a block or a sequence of equal layers, and moves into it"),
            ("Enter", "Moves into the fields of the layer, and back to the list"),
            ("Delete", "Removes the layer"),
        ],
    ),
    (
        "Capture plan",
        &[(
            "Up, Down, Left, Right",
            "Moves through the layers, and folds and unfolds them, while the table has the focus",
        )],
    ),
    ("Runs", &[("Up, Down, Delete", "Selects a run, and moves it to the trash, while the table has the focus")]),
    (
        "Plots",
        &[
            ("drag", "Zooms into a box; along one axis, zooms that axis alone"),
            ("right drag, double click", "Pans; shows the whole run"),
        ],
    ),
    ("Questions", &[("Enter, Escape", "Gives the first answer, or cancels")]),
    ("Command palette", &[("Up, Down, Enter", "Chooses and runs")]),
    (
        "Everywhere",
        &[
            ("Tab, Space", "Moves from control to control, and presses it"),
            ("F6, Shift+F6", "Goes to the next panel, and to the previous one; Tab moves inside a panel"),
        ],
    ),
];

/// Shows the open page.
pub fn help_ui(ui: &Ui, view: &HelpView<'_>, help: &mut Help) {
    let Some(page) = help.page else { return };
    let modal = theme::dialog(ui, "help").show(ui.ctx(), |ui| {
        ui.set_width(520.0);
        match page {
            Page::Shortcuts => shortcuts_ui(ui, &mut help.search, std::mem::take(&mut help.fresh)),
            Page::About => about_ui(ui, view),
        }
        ui.add_space(8.0);
        answers_ui(ui, &["Close"], |button, _| button.clicked()).is_some()
    });
    if modal.inner || modal.should_close() {
        help.page = None;
    }
}

fn shortcuts_ui(ui: &mut Ui, search: &mut String, fresh: bool) {
    ui.label(RichText::new("Keyboard shortcuts").font(theme::strong(15.0)));
    weak_ui(ui, "Every other command is in the palette, by name.");
    ui.add_space(4.0);
    let about = "Find a key or a command";
    let field = text_line_ui(ui, search, about, about, f32::INFINITY);
    if fresh {
        field.request_focus();
    }
    let query = search.to_lowercase();
    let palette = (UiCommand::Palette.info().label.to_owned(), UiCommand::Palette.info());
    let listed = UiCommand::listed().into_iter().map(|c| (c.title(), c.info()));
    let mut rows: Vec<(String, String, String)> = std::iter::once(palette)
        .chain(listed)
        .filter_map(|(title, info)| Some((keys_text(ui.ctx(), &info.shortcut?), title, info.about.to_owned())))
        .collect();
    rows.extend(IN_PLACE.iter().flat_map(|(place, keys)| {
        keys.iter().map(|(keys, about)| ((*keys).to_owned(), (*place).to_owned(), (*about).to_owned()))
    }));
    rows.retain(|(a, b, c)| query.is_empty() || format!("{a} {b} {c}").to_lowercase().contains(&query));
    ui.add_space(4.0);
    if rows.is_empty() {
        weak_ui(ui, "No command has this name. Try fewer letters.");
    }
    let mut area = ScrollArea::vertical().id_salt("shortcut list").max_height(420.0).auto_shrink([false, true]);
    if fresh || field.changed() {
        // A page that was just opened, or another list, starts at its top.
        area = area.vertical_scroll_offset(0.0);
    }
    area.show(ui, |ui| {
        egui::Grid::new("shortcuts").num_columns(2).spacing([16.0, 6.0]).show(ui, |ui| {
            for (keys, title, about) in &rows {
                let keys = RichText::new(keys).font(theme::mono()).color(theme::colors(ui).accent);
                ui.scope(|ui| {
                    ui.set_max_width(170.0);
                    ui.add(egui::Label::new(keys).wrap());
                });
                ui.vertical(|ui| {
                    ui.spacing_mut().item_spacing.y = 0.0;
                    ui.label(title);
                    weak_ui(ui, about);
                });
                ui.end_row();
            }
        });
    });
}

fn about_ui(ui: &mut Ui, view: &HelpView<'_>) {
    ui.label(RichText::new("Stepgraph").font(theme::strong(20.0)));
    weak_ui(ui, format!("Version {}", env!("CARGO_PKG_VERSION")));
    ui.add_space(8.0);
    ui.label(
        "See how a neural network's training step is compiled, record it once, and replay it. Everything shown here is \
         also text or JSON by the commands of the same program: stepgraph --help lists them.",
    );
    ui.add_space(8.0);
    for (label, value) in [
        ("This machine", format!("{}, {}", view.device_about, view.device)),
        ("Licence", "MIT or Apache 2.0, as you like".into()),
        ("Fonts", "Inter and JetBrains Mono under the OFL, icons from Lucide under the ISC licence".into()),
        ("Data", "The bundled data sets are under CC BY 4.0; assets/README.md names their authors".into()),
    ] {
        ui.horizontal_wrapped(|ui| {
            weak_ui(ui, label);
            ui.label(RichText::new(value).size(12.0));
        });
    }
}
