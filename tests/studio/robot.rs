//! Simulates the user: finds controls by name, presses, types, waits.

use egui::accesskit::Role;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stepgraph::studio::commands::Action;
use stepgraph::studio::{Startup, StudioApp};
use stepgraph::train::RunState;
use stepgraph::train::runs::RunStore;
use tempfile::TempDir;

pub struct Robot {
    pub window: Harness<'static, StudioApp>,
}

/// Performs the requested input, and draws the result.
pub fn perform(robot: &mut Robot, action: impl Into<Action>) {
    robot.choose(action);
    robot.window.run_steps(3);
}

/// A window that was requested to open a file with this text, which is not a preset, after it has reported that; and
/// the folder of the file.
pub fn refusing(text: &str) -> (TempDir, Robot) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.json");
    std::fs::write(&path, text).unwrap();
    let mut robot = Robot::open(path.to_str());
    robot.until("the answer", |app| app.studio.notice.is_some());
    (folder, robot)
}

/// A window with an unsaved change, which asks about it before a new network replaces it.
pub fn asking_to_save() -> Robot {
    let mut robot = Robot::open(None);
    robot.set("batch", "32");
    robot.key(egui::Modifiers::COMMAND, egui::Key::N);
    assert!(robot.sees("Save the changes to digits-mlp?"));
    robot
}

/// A window whose kept runs are in this folder, once it has listed them.
pub fn open_runs(folder: &Path) -> Robot {
    let mut robot = Robot::start(Startup { runs: Some(RunStore::at(folder.join("runs"))), ..Startup::default() });
    robot.until("the list", |app| app.studio.runs.problem.is_none());
    robot
}

impl Robot {
    /// A window that opened with a preset, and has compiled it.
    pub fn open(preset: Option<&str>) -> Self {
        Self::start(Startup { preset: preset.map(PathBuf::from), ..Startup::default() })
    }

    pub fn start(startup: Startup) -> Self {
        Self::start_with(startup, None)
    }

    /// A window with the stored settings of a previous one.
    pub fn start_with(startup: Startup, storage: Option<&'static dyn eframe::Storage>) -> Self {
        let builder = Harness::builder().with_size([1280., 800.]).with_max_steps(64);
        let window = builder.build_eframe(move |cc| {
            cc.storage = storage;
            StudioApp::new(cc, &startup).expect("threads")
        });
        let mut robot = Self { window };
        robot.settle();
        robot
    }

    /// Performs the requested input without drawing.
    pub fn choose(&mut self, action: impl Into<Action>) {
        let ctx = self.window.ctx.clone();
        self.window.state_mut().perform(&ctx, action);
    }

    /// Selects a layer by its label, and adds a copy after it.
    pub fn copy_layer(&mut self, label: &str) {
        self.press(&format!("Select {label}"));
        self.command_key(egui::Key::D);
    }

    pub fn app(&self) -> &StudioApp {
        self.window.state()
    }

    /// Draws until `done`, or fails after a time that only a hang reaches.
    pub fn until(&mut self, what: &str, done: impl Fn(&StudioApp) -> bool) {
        let started = Instant::now();
        while !done(self.window.state()) {
            assert!(started.elapsed() < Duration::from_secs(60), "waited for: {what}");
            std::thread::sleep(Duration::from_millis(2));
            self.window.step();
        }
        self.window.step();
    }

    /// Draws until the newest document is compiled.
    pub fn settle(&mut self) {
        self.window.step();
        self.window.step();
        self.until("the compiler", |app| app.studio.is_answered());
        self.window.step();
    }

    /// Presses the first button with this name: the transport comes before the tab with the same name.
    pub fn press(&mut self, name: &str) {
        let button = self.window.query_all_by_role_and_label(Role::Button, name).next();
        button.unwrap_or_else(|| panic!("no button {name}")).click();
        self.window.step();
        self.window.step();
    }

    /// Starts a run of this many steps.
    pub fn train(&mut self, steps: u64) {
        self.write("steps", &steps.to_string());
        self.settle();
        self.press("Train this network");
    }

    /// Starts a run that is far from its end, and waits until it has made more steps than these.
    pub fn train_beyond(&mut self, steps: u64) {
        self.train(100_000_000);
        self.until("some steps", |app| app.studio.training.done() > steps);
    }

    /// Makes a run of this many steps, and waits for its end.
    pub fn train_to_the_end(&mut self, steps: u64) {
        self.train(steps);
        self.until("the end", |app| app.studio.training.state == Some(RunState::Finished));
    }

    pub fn key(&mut self, modifiers: egui::Modifiers, key: egui::Key) {
        self.window.key_press_modifiers(modifiers, key);
        self.window.step();
        self.window.step();
    }

    /// Presses keys one after another, without modifiers.
    pub fn keys(&mut self, keys: &[egui::Key]) {
        keys.iter().for_each(|key| self.key(egui::Modifiers::NONE, *key));
    }

    /// Presses the key of a command, and waits for its result.
    pub fn command_key(&mut self, key: egui::Key) {
        self.key(egui::Modifiers::COMMAND, key);
        self.settle();
    }

    /// Replaces the text of a field.
    pub fn write(&mut self, name: &str, text: &str) {
        self.window.get_by_role_and_label(Role::TextInput, name).focus();
        self.window.step();
        self.window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::A);
        self.window.step();
        self.window.get_by_role_and_label(Role::TextInput, name).type_text(text);
        self.window.step();
        self.window.step();
    }

    /// Replaces the text of a field, and waits for the result.
    pub fn set(&mut self, name: &str, text: &str) {
        self.write(name, text);
        self.settle();
    }

    pub fn value(&self, name: &str) -> String {
        self.window.get_by_role_and_label(Role::TextInput, name).value().unwrap_or_default()
    }

    pub fn sees(&self, text: &str) -> bool {
        self.window.query_all_by_label_contains(text).next().is_some()
    }
}

/// The storage of a window between its starts.
#[derive(Default)]
pub struct Memory(std::collections::HashMap<String, String>);

impl eframe::Storage for Memory {
    fn get_string(&self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }

    fn set_string(&mut self, key: &str, value: String) {
        self.0.insert(key.to_owned(), value);
    }

    fn remove_string(&mut self, key: &str) {
        self.0.remove(key);
    }

    fn flush(&mut self) {}
}

impl Memory {
    /// What a window that is closed now would store for the next one.
    pub fn of(robot: &mut Robot) -> &'static Self {
        let memory: &'static mut Self = Box::leak(Box::default());
        eframe::App::save(robot.window.state_mut(), memory);
        memory
    }
}
