//! The table of features: their range, mean and standard deviation.

use crate::studio::theme;
use crate::studio::view_models::data::DataView;
use crate::studio::view_models::format;
use crate::studio::widgets::button::weak_ui;
use crate::studio::widgets::frozen_columns::{Frozen, Ground};
use egui::{Align, Layout, RichText, ScrollArea, Ui};
use egui_extras::{Column, TableBuilder};

/// The columns of the table.
const FEATURES: [&str; 5] = ["feature", "least", "largest", "mean", "std"];

/// Shows the table.
pub fn features_ui(ui: &mut Ui, data: &DataView) {
    let what = if data.picture.is_some() { "Channels, over every pixel of all samples" } else { "Over all samples" };
    weak_ui(ui, what);
    let width: usize = data.set.inputs.iter().map(|input| input.sample.len()).sum();
    if data.features.len() < width && data.picture.is_none() {
        weak_ui(ui, format!("the first {} of {width}", data.features.len()));
    }
    let scroll = ScrollArea::horizontal().id_salt("features across").auto_shrink([false, false]);
    scroll.show_viewport(ui, |ui, viewport| {
        let frozen = Frozen::new(ui, viewport, 1);
        let table = TableBuilder::new(ui)
            .id_salt("feature table")
            .auto_shrink([false, false])
            .cell_layout(Layout::left_to_right(Align::Center))
            .column(Column::remainder().at_least(96.0).clip(true))
            .columns(Column::exact(80.0), FEATURES.len() - 1);
        let table = table.header(20.0, |mut row| {
            frozen.row_ui(&mut row, FEATURES.len(), Ground::default(), |ui, at| drop(weak_ui(ui, FEATURES[at])));
        });
        table.body(|body| {
            body.rows(20.0, data.features.len(), |mut row| {
                let Some(f) = data.features.get(row.index()) else { return };
                let values = [f64::from(f.min), f64::from(f.max), f.mean, f.std];
                frozen.row_ui(&mut row, FEATURES.len(), Ground::default(), |ui, at| match at.checked_sub(1) {
                    None => drop(ui.add(egui::Label::new(&f.name).truncate())),
                    Some(at) => {
                        let text = RichText::new(format::number(values[at])).font(theme::mono());
                        ui.label(text).on_hover_text(values[at].to_string());
                    }
                });
            });
        });
    });
}
