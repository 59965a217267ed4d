//! What the Data tab shows.

use crate::model::DataSource;
use crate::studio::view_models::data::DataView;
use crate::studio::view_models::network::Section;
use std::time::Duration;

/// What the Data tab shows.
#[derive(Clone, Copy, Debug)]
pub struct DataPanelView<'a> {
    /// The fields of the document's data.
    pub section: Option<&'a Section>,
    /// The source of the document's samples.
    pub source: Option<&'a DataSource>,
    /// The newest data set that could be loaded, and whether it is that of the document.
    pub loaded: Option<&'a DataView>,
    pub is_current: bool,
    /// True if the document's data cannot be loaded.
    pub has_problem: bool,
    /// The time after which its files are checked again.
    pub retry_after: Duration,
    /// Increases with every data set.
    pub generation: u64,
}
