//! What the top bar shows.

use crate::studio::commands::DeviceChoice;
use crate::studio::commands::choices::FirstKernels;
use crate::studio::view_models::readiness::EnabledCommands;
use crate::studio::view_models::transport::{Next, Transport};
use crate::train::RunState;
use std::path::PathBuf;

/// What the top bar shows.
#[derive(Clone, Debug)]
pub struct TopBarView<'a> {
    /// The document's title, and the path of its file.
    pub title: String,
    pub place: Option<String>,
    pub is_dirty: bool,
    pub recent: &'a [PathBuf],
    /// True if the panels beside the tabs are hidden.
    pub hides_network: bool,
    pub hides_inspector: bool,
    pub state: Option<&'a RunState>,
    /// The device of a run that goes on, if it is not the one in use.
    pub runs_on: Option<DeviceChoice>,
    pub device: DeviceView<'a>,
    /// The kernels that runs start with; `None` if the device has one kind.
    pub starts_with: Option<FirstKernels>,
    pub transport: TransportView,
    pub enabled: &'a EnabledCommands,
}

/// The device in use, and those that can be chosen.
#[derive(Clone, Debug)]
pub struct DeviceView<'a> {
    pub name: &'a str,
    pub about: &'a str,
    /// The precision of the document.
    pub precision: &'static str,
    pub chosen: DeviceChoice,
    /// Name, description and choice of every device.
    pub all: Vec<(&'a str, &'a str, DeviceChoice)>,
    pub why_no_gpu: Option<&'a str>,
    /// Why no GPU can run the network on screen; `None` if a GPU can.
    pub cpu_only: Option<&'a str>,
}

/// The buttons of the run.
#[derive(Clone, Copy, Debug)]
pub struct TransportView {
    pub allowed: Transport,
    /// The effect of pressing Train.
    pub next: Next,
    pub is_running: bool,
    pub is_stopped: bool,
    /// True if the run is kept.
    pub is_recording: bool,
}
