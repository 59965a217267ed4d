//! What a plot of several runs shows for each.

use crate::studio::view_models::loaded_run::LoadedRun;
use crate::studio::view_models::series::smoothed::Smoothed;

/// A run with its letter.
pub struct Compared<'a> {
    pub letter: char,
    pub name: &'a str,
    pub run: &'a LoadedRun,
}

/// What a plot shows for every run.
#[derive(Clone, Copy)]
pub enum Shown<'a> {
    /// A curve over every step, and points at some.
    Curve(fn(&LoadedRun) -> &Smoothed, fn(&LoadedRun) -> &[[f64; 2]]),
    /// The changes of the layer with this name; for a single run of all layers.
    Layer(&'a str),
}

/// A plot of several runs.
pub struct CompareSpec<'a> {
    pub title: &'static str,
    pub shown: Shown<'a>,
    pub log: bool,
    pub by_time: bool,
    pub value: fn(f64) -> String,
    pub tick: fn(f64, f64) -> String,
}
