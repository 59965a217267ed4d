//! What the Help menu's pages show.

/// The device in use, as the page about the program names it.
#[derive(Clone, Copy, Debug)]
pub struct HelpView<'a> {
    pub device: &'a str,
    pub device_about: &'a str,
}
