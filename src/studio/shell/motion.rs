//! Whether the system requests reduced motion: queried once at the start, with the system's own tool, on a thread.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's setting; full motion until it is known.
#[derive(Clone, Debug, Default)]
pub struct Motion(Arc<AtomicBool>);

impl Motion {
    /// Queries the system; `wake` is called if the answer is reduced motion.
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
        // If no thread can be started, motion is not reduced.
        drop(std::thread::Builder::new().name("stepgraph-motion".into()).spawn(asks));
        out
    }

    /// True if the system requests reduced motion.
    #[must_use]
    pub fn is_reduced(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a system is queried: a tool with its arguments, and whether its answer means reduced motion; `None` if the
/// answer means nothing.
struct Question {
    tool: &'static str,
    arguments: &'static [&'static str],
    is_less: fn(&str) -> Option<bool>,
}

const LINUX: Question = Question {
    tool: "gsettings",
    arguments: &["get", "org.gnome.desktop.interface", "enable-animations"],
    is_less: |answer| Some(answer == "false"),
};
const MACOS: Question = Question {
    tool: "defaults",
    arguments: &["read", "com.apple.universalaccess", "reduceMotion"],
    is_less: |answer| Some(answer == "1"),
};
/// The switch "Animation effects" is the bit of `SPI_GETCLIENTAREAANIMATION` (0x1042) in a mask whose bit 0 belongs to
/// 0x1000, with two numbers for each bit.
const WINDOWS: Question = Question {
    tool: "reg",
    arguments: &["query", r"HKCU\Control Panel\Desktop", "/v", "UserPreferencesMask"],
    is_less: |answer| {
        let bytes = answer.split_whitespace().last()?;
        let fifth = u8::from_str_radix(bytes.get(8..10)?, 16).ok()?;
        Some(fifth & 2 == 0)
    },
};

/// The system's answer; `None` if it has no such tool or setting.
fn asked() -> Option<bool> {
    let question = match std::env::consts::OS {
        "linux" => LINUX,
        "macos" => MACOS,
        "windows" => WINDOWS,
        _ => return None,
    };
    let mut command = Command::new(question.tool);
    command.args(question.arguments);
    #[cfg(windows)]
    {
        /// `CREATE_NO_WINDOW`: no console appears if the studio has none.
        const NO_WINDOW: u32 = 0x0800_0000;
        std::os::windows::process::CommandExt::creation_flags(&mut command, NO_WINDOW);
    }
    let answer = command.output().ok().filter(|o| o.status.success())?;
    (question.is_less)(String::from_utf8_lossy(&answer.stdout).trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::shell::settings::Settings;

    #[test]
    fn the_users_choice_takes_precedence_over_the_systems() {
        let settings = |still| Settings { still, ..Settings::default() };
        assert!(settings(None).is_still(true) && !settings(None).is_still(false));
        assert!(!settings(Some(false)).is_still(true) && settings(Some(true)).is_still(false));
        assert!(!Motion::default().is_reduced());
    }

    #[test]
    fn the_answer_of_each_system_is_parsed() {
        assert_eq!(["true", "false"].map(LINUX.is_less), [Some(false), Some(true)]);
        assert_eq!(["0", "1"].map(MACOS.is_less), [Some(false), Some(true)]);
        let registry = |mask: &str| {
            let answer =
                format!("HKEY_CURRENT_USER\\Control Panel\\Desktop\r\n    UserPreferencesMask    REG_BINARY    {mask}");
            (WINDOWS.is_less)(&answer)
        };
        // The mask of Windows with animations, and with "Animation effects" off.
        assert_eq!(["9E1E078012000000", "9E1E078010000000"].map(registry), [Some(false), Some(true)]);
        assert_eq!(["", "9E1E", "letters!?"].map(registry), [None; 3]);
    }
}
