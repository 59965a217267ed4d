//! Icons: code points of the Lucide font in `assets/fonts`, by their meaning.

/// Declares the icons, each as a text of one character.
macro_rules! icons {
    ($($NAME:ident: $text:expr,)*) => {
        $(pub const $NAME: &str = $text;)*
    };
}

icons! {
    ADD: "\u{e13d}",
    ARENA: "\u{e445}",
    BACK: "\u{e048}",
    BLOCK: "\u{e061}",
    CAPTURE: "\u{e2f9}",
    COPY: "\u{e09e}",
    DATA: FILE,
    DEVICE: "\u{e0a9}",
    DOWN: "\u{e06d}",
    FILE: "\u{e0c0}",
    FILE_NEW: "\u{e0c9}",
    FIT: "\u{e112}",
    FOLDED: "\u{e06f}",
    FORWARD: "\u{e049}",
    FROZEN: "\u{e165}",
    GRIP: "\u{e0eb}",
    INFO: "\u{e0f9}",
    INTO: "\u{e0a2}",
    LIVE: "\u{e038}",
    MENU: "\u{e0b7}",
    OPEN: "\u{e247}",
    PALETTE: "\u{e09a}",
    PAUSE: "\u{e12e}",
    PLAY: "\u{e13c}",
    PREDICTIONS: SEARCH,
    QUIT: "\u{e10e}",
    RECENT: "\u{e1f5}",
    REDO: "\u{e2a0}",
    RESET: "\u{e148}",
    SAVE: "\u{e14d}",
    SEARCH: "\u{e151}",
    STEP: "\u{e3ea}",
    STEPS: "\u{e408}",
    STOP: "\u{e167}",
    THEME: "\u{e2b2}",
    TRAIN: "\u{e2a5}",
    TRASH: "\u{e18e}",
    UNDO: "\u{e2a1}",
    UP: "\u{e070}",
    WARNING: "\u{e193}",
    CLOSE: "\u{e1b2}",
    CHECK: "\u{e06c}",
    FOLLOW: "\u{e1db}",
}
