//! A person at the window: finds controls by name, presses, types, waits.

use egui::accesskit::Role;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stepgraph::studio::{Startup, StudioApp};

pub struct Robot {
    pub window: Harness<'static, StudioApp>,
}

impl Robot {
    /// A window that opened with a preset, and has compiled it.
    pub fn open(preset: Option<&str>) -> Self {
        Self::start(Startup { preset: preset.map(PathBuf::from), ..Startup::default() })
    }

    pub fn start(startup: Startup) -> Self {
        Self::start_with(startup, None)
    }

    /// A window that remembers what was stored by one before.
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

    /// Presses the first button of this name: the transport comes before the tab that is called like its button.
    pub fn press(&mut self, name: &str) {
        let button = self.window.query_all_by_role_and_label(Role::Button, name).next();
        button.unwrap_or_else(|| panic!("no button {name}")).click();
        self.window.step();
        self.window.step();
    }

    pub fn key(&mut self, modifiers: egui::Modifiers, key: egui::Key) {
        self.window.key_press_modifiers(modifiers, key);
        self.window.step();
        self.window.step();
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

    pub fn value(&self, name: &str) -> String {
        self.window.get_by_role_and_label(Role::TextInput, name).value().unwrap_or_default()
    }

    pub fn sees(&self, text: &str) -> bool {
        self.window.query_all_by_label_contains(text).next().is_some()
    }
}
