//! Opens the network that was open last.

use crate::studio::document::last_opened::LastOpened;
use crate::studio::shell::state::Studio;
use std::path::Path;

impl Studio {
    /// Opens the network that was open last, before the first frame. If it no longer exists, this is reported, and the
    /// first preset stays open.
    pub(in crate::studio) fn open_last(&mut self) {
        let Some(last) = self.settings.last.clone() else { return };
        match last.read() {
            Ok((preset, path)) => {
                self.document.replace(preset, path.map(Path::to_owned));
                if let Some(path) = path {
                    self.files.learn(path.to_owned());
                }
            }
            Err(why) => {
                // A file that cannot be opened is removed from the recent files.
                self.settings.recent.retain(|p| last != LastOpened::File(p.clone()));
                let lost = match &last {
                    LastOpened::File(path) => {
                        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
                    }
                    LastOpened::Bundled(name) => name.clone(),
                    LastOpened::Text(_) => "The network".to_owned(),
                };
                let open = &self.document.preset().name;
                self.complain(format!(
                    "{lost} that was open last cannot be opened; {open} is open in its place.\n{why}"
                ));
            }
        }
    }
}
