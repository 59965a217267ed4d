//! The capture plan folded like the list of layers: a block, or a sequence of equal layers, is one row with the totals
//! of its tensors.

use crate::model::LayerPath;
use crate::studio::commands::fold::Fold;
use crate::studio::view_models::capture::{COLUMNS, CaptureView, Cell, Shown};
use crate::studio::view_models::folded_layers::FoldRow;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::network::{Card, NetworkView, Row};
use crate::tensor::Bytes;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The totals of the tensors of several rows.
#[derive(Clone, Debug, PartialEq)]
pub struct SumCell {
    /// In the order of [`crate::studio::view_models::capture::Shown::ALL`].
    pub texts: [String; 5],
    pub tooltip: String,
}

/// The content of the columns.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// The cells of a row of the plan, by its index.
    Own(usize),
    /// In the order of [`COLUMNS`].
    Sum(Vec<Option<SumCell>>),
    /// Empty, because the rows below have the content.
    Nothing,
}

/// One row of the folded table.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureLine {
    pub name: String,
    pub layer: Option<LayerPath>,
    /// The depth of its nesting; 0 is outermost.
    pub depth: usize,
    /// What folds it, and whether it is folded.
    pub fold: Option<(Fold, bool)>,
    /// The cards of the network that it represents.
    pub cards: Range<usize>,
    pub cells: Cells,
}

impl CaptureLine {
    /// What folds it; `None` if it belongs to no layer.
    #[must_use]
    pub fn fold_row(&self) -> Option<FoldRow> {
        let of_run = self.fold.as_ref().map(|(Fold::Block(path) | Fold::Run(path), _)| path);
        Some((self.layer.as_ref().or(of_run)?.clone(), self.fold.clone()))
    }
}

/// The tensors of one column.
fn sum(cells: &[&Cell]) -> Option<SumCell> {
    let first = cells.first()?;
    let count = cells.len();
    let one = |text: usize| cells.iter().all(|c| c.texts[text] == first.texts[text]).then(|| &first.texts[text]);
    let bytes = Bytes(cells.iter().map(|c| c.bytes).sum()).to_string();
    let offset = cells.iter().map(|c| c.offset).min().unwrap_or_default();
    let shapes = cells.iter().map(|c| &c.texts[0]).collect::<HashSet<_>>().len();
    let sharing = cells.iter().filter(|c| c.texts[4] != "–").count();
    let texts = [
        one(0).map_or_else(|| plain_count(shapes, "shape"), |shape| format!("{count} × {shape}")),
        one(1).map_or_else(|| "mixed".to_owned(), Clone::clone),
        bytes.clone(),
        format!("from {offset:#x}"),
        if sharing > 0 { format!("{sharing} of {count}") } else { "–".to_owned() },
    ];
    let tooltip = format!(
        "{}, {bytes} if each had its own bytes\nthe first one at {offset:#x}\nUnfold the row to see each.",
        plain_count(count, "tensor")
    );
    Some(SumCell { texts, tooltip })
}

impl CaptureView {
    /// The rows of the plan, folded like `rows` of the network. A plan of another network is not folded.
    #[must_use]
    pub fn lines(&self, network: &NetworkView, rows: &[Row]) -> Vec<CaptureLine> {
        let by_path: HashMap<&LayerPath, usize> = network.cards.iter().enumerate().map(|(i, c)| (&c.path, i)).collect();
        let mut of_card: Vec<Vec<usize>> = vec![Vec::new(); network.cards.len()];
        for (index, row) in self.layers.iter().enumerate() {
            match row.layer.as_ref().and_then(|path| by_path.get(path)) {
                Some(&card) => of_card[card].push(index),
                None => return (0..self.layers.len()).map(|i| self.line(i, 0, 0..0)).collect(),
            }
        }
        let first = |row: &Row| match row {
            Row::Card(card) | Row::Block(card, _) => *card,
            Row::List { next, .. } => *next,
            Row::Run { run, .. } => by_path.get(&network.runs[*run].first).copied().unwrap_or_default(),
        };
        let mut out = Vec::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            let cards = first(row)..rows.get(at + 1).map_or(network.cards.len(), first);
            match row {
                Row::Run { run, class, depth, folded, .. } => {
                    let run = &network.runs[*run];
                    out.push(CaptureLine {
                        name: format!("{} × {class}", run.count),
                        layer: None,
                        depth: *depth,
                        fold: Some((Fold::Run(run.first.clone()), *folded)),
                        cells: if *folded { self.sums(&of_card[cards.clone()]) } else { Cells::Nothing },
                        cards,
                    });
                }
                Row::Block(card, _) => {
                    let block = &network.cards[*card];
                    out.push(CaptureLine {
                        name: format!("L{}:{}", block.number(), block.class),
                        layer: Some(block.path.clone()),
                        depth: block.depth(),
                        fold: Some((Fold::Block(block.path.clone()), true)),
                        cells: self.sums(&of_card[cards.clone()]),
                        cards,
                    });
                }
                // The names of the layers show which list they are in.
                Row::List { .. } => {}
                Row::Card(card) => self.push_card(*card, &network.cards[*card], &of_card[*card], &mut out),
            }
        }
        out
    }

    /// Appends the rows of the card at this position, taken from the plan; for a block without any it is its head.
    fn push_card(&self, at: usize, layer: &Card, rows: &[usize], out: &mut Vec<CaptureLine>) {
        let fold = layer.can_fold().then(|| (Fold::Block(layer.path.clone()), false));
        let from = out.len();
        out.extend(rows.iter().map(|i| self.line(*i, layer.depth(), at..at + 1)));
        if out.len() == from && fold.is_some() {
            out.push(CaptureLine {
                name: format!("L{}:{}", layer.number(), layer.class),
                layer: Some(layer.path.clone()),
                depth: layer.depth(),
                fold: None,
                cards: at..at + 1,
                cells: Cells::Nothing,
            });
        }
        if let Some(head) = out.get_mut(from) {
            head.fold = fold;
        }
    }

    /// The number of characters of the longest text in every column of these rows.
    #[must_use]
    pub fn longest(&self, lines: &[CaptureLine], shown: Shown) -> [usize; COLUMNS.len()] {
        let text = |line: &CaptureLine, column: usize| match &line.cells {
            Cells::Own(at) => {
                self.layers[*at].cells[column].as_ref().map_or(0, |c| c.texts[shown as usize].chars().count())
            }
            Cells::Sum(sums) => sums[column].as_ref().map_or(0, |s| s.texts[shown as usize].chars().count()),
            Cells::Nothing => 0,
        };
        let mut out = [0; COLUMNS.len()];
        for (column, most) in out.iter_mut().enumerate() {
            *most = lines.iter().map(|l| text(l, column)).max().unwrap_or_default();
        }
        // Below the layers, the first column contains values that belong to no layer.
        let others = self.others.iter().filter_map(|(_, cell)| cell.as_ref());
        out[0] = others.map(|c| c.texts[shown as usize].chars().count()).fold(out[0], usize::max);
        out
    }

    fn line(&self, index: usize, depth: usize, cards: Range<usize>) -> CaptureLine {
        let row = &self.layers[index];
        CaptureLine {
            name: row.name.clone(),
            layer: row.layer.clone(),
            depth,
            fold: None,
            cards,
            cells: Cells::Own(index),
        }
    }

    /// The totals of these rows, column by column.
    fn sums(&self, of_cards: &[Vec<usize>]) -> Cells {
        let column = |column: usize| {
            let rows = of_cards.iter().flatten().filter_map(|i| self.layers[*i].cells[column].as_ref());
            sum(&rows.collect::<Vec<_>>())
        };
        Cells::Sum((0..COLUMNS.len()).map(column).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::commands::fold::FoldCommand;
    use crate::studio::document::presets;
    use crate::studio::view_models::folded_layers::FoldedLayers;
    use crate::studio::view_models::plan::PlanView;

    #[test]
    fn the_table_is_folded_like_the_list_and_keeps_every_byte() {
        let preset =
            presets::bundled((0..presets::count()).find(|i| presets::name(*i) == "stress-200").unwrap()).unwrap();
        let plan = PlanView::of_preset(&preset);
        let network = NetworkView::new(&preset, None, Some(&plan), None, &[]);
        let mut folds = FoldedLayers::default();
        let flat = plan.capture.lines(&network, &network.rows(|f| folds.is_folded(f)));
        let own = |lines: &[CaptureLine]| lines.iter().filter(|l| matches!(l.cells, Cells::Own(_))).count();
        assert_eq!(own(&flat), plan.capture.layers.len());
        assert!(flat.len() < network.rows(|f| folds.is_folded(f)).len() + plan.capture.layers.len());
        folds.perform(FoldCommand::All, &network);
        let folded = plan.capture.lines(&network, &network.rows(|f| folds.is_folded(f)));
        assert_eq!(folded.len(), network.rows(|f| folds.is_folded(f)).len());
        assert!(folded.len() < 8 && folded.iter().any(|l| l.fold.as_ref().is_some_and(|(_, folded)| *folded)));
        // Every card belongs to one row.
        let ends: Vec<usize> = folded.iter().flat_map(|l| [l.cards.start, l.cards.end]).collect();
        assert_eq!((ends[0], ends[ends.len() - 1]), (0, network.cards.len()));
        assert!(ends.windows(2).all(|w| w[0] <= w[1]), "{ends:?}");
        // A plan of another network is shown unfolded.
        let other = NetworkView::new(&presets::digits(), None, None, None, &[]);
        assert_eq!(own(&plan.capture.lines(&other, &other.rows(|_| false))), plan.capture.layers.len());
    }

    #[test]
    fn equal_tensors_are_listed_once_and_different_ones_counted() {
        let cell = |shape: &str, bytes: u64, offset: u64| Cell {
            part: None,
            texts: [shape.into(), "f32".into(), Bytes(bytes).to_string(), format!("{offset:#x}"), "–".into()],
            tooltip: String::new(),
            buffer: crate::plan::BufferId(0),
            bytes,
            offset,
        };
        let (a, b, c) = (cell("[2, 3]", 24, 512), cell("[2, 3]", 24, 256), cell("[4]", 16, 768));
        assert_eq!(sum(&[&a, &b]).unwrap().texts, ["2 × [2, 3]", "f32", "48 B", "from 0x100", "–"]);
        assert_eq!(sum(&[&a, &b, &c]).unwrap().texts[0], "2 shapes");
        assert!(sum(&[]).is_none());
    }
}
