//! A choice between a few views, as buttons in a row.

use egui::{Button, Ui};

/// Shows the choice; returns true if another one was chosen. Each item is its value, its name and its tooltip.
pub fn segments_ui<T: Copy + PartialEq>(ui: &mut Ui, chosen: &mut T, items: &[(T, &str, &str)]) -> bool {
    let before = *chosen;
    let mut buttons = |ui: &mut Ui| {
        for (value, name, about) in items {
            let on = *value == *chosen;
            let response = ui.add(Button::selectable(on, *name)).on_hover_text(*about);
            response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, on, *name));
            if response.clicked() {
                *chosen = *value;
            }
        }
    };
    let spacing = std::mem::replace(&mut ui.spacing_mut().item_spacing.x, 4.0);
    // A row that wraps breaks between any two of them.
    if ui.layout().main_wrap() {
        buttons(ui);
    } else {
        ui.horizontal(buttons);
    }
    ui.spacing_mut().item_spacing.x = spacing;
    before != *chosen
}
