//! Whether the system asks for less motion: asked once at the start, by the system's own tool, on a thread.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the system asks for; full motion until it is known.
#[derive(Clone, Debug, Default)]
pub struct Motion(Arc<AtomicBool>);

impl Motion {
    /// Asks the system; `wake` is called where the answer is less motion.
    #[must_use]
    pub fn ask(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        let out = Self::default();
        let answer = Arc::clone(&out.0);
        let asks = move || {
            if asked() == Some(true) {
                answer.store(true, Ordering::Relaxed);
                wake();
            }
        };
        // Where no thread is to be had, nobody asked for less.
        drop(std::thread::Builder::new().name("stepgraph-motion".into()).spawn(asks));
        out
    }

    /// True where the system asks for less motion.
    #[must_use]
    pub fn is_reduced(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A tool of this system with its arguments, and the answer that means less motion.
const fn question() -> Option<(&'static str, &'static [&'static str], &'static str)> {
    if cfg!(target_os = "linux") {
        Some(("gsettings", &["get", "org.gnome.desktop.interface", "enable-animations"], "false"))
    } else if cfg!(target_os = "macos") {
        Some(("defaults", &["read", "com.apple.universalaccess", "reduceMotion"], "1"))
    } else {
        None
    }
}

/// What the system answers; `None` where it has no such tool or setting.
fn asked() -> Option<bool> {
    let (tool, arguments, less) = question()?;
    let answer = Command::new(tool).args(arguments).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&answer.stdout).trim() == less)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::settings::Settings;

    #[test]
    fn a_choice_of_ones_own_stands_before_the_system() {
        let settings = |still| Settings { still, ..Settings::default() };
        assert!(settings(None).is_still(true) && !settings(None).is_still(false));
        assert!(!settings(Some(false)).is_still(true) && settings(Some(true)).is_still(false));
        assert!(!Motion::default().is_reduced());
    }
}
