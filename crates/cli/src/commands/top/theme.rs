//! What the terminal can display.

use ratatui::style::{Color, Modifier, Style};

pub const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
pub const HEADING: Style = Style::new().add_modifier(Modifier::BOLD);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    /// Colours, besides bold and reversed text.
    pub colour: bool,
    /// Characters beyond ASCII.
    pub unicode: bool,
}

impl Theme {
    /// Reads `NO_COLOR` (no-color.org) and the locale.
    pub fn from_environment() -> Self {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        // The first variable that is set wins (locale(7)).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let locale = locale.unwrap_or_default().to_lowercase();
        Self {
            colour: set("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    pub fn warning_style(self) -> Style {
        self.coloured_style(Color::Red)
    }

    pub fn huge_pages_style(self) -> Style {
        self.coloured_style(Color::Green)
    }

    /// The text, with ASCII replacements where the terminal can't display Unicode.
    pub fn to_displayable(self, text: &str) -> String {
        if self.unicode || text.is_ascii() {
            return text.to_owned();
        }
        let plain = |c: char| match c {
            '…' => '~',
            c if c.is_ascii() => c,
            _ => '?',
        };
        text.chars().map(plain).collect()
    }

    fn coloured_style(self, colour: Color) -> Style {
        let colour = self.colour.then_some(colour);
        colour.map_or_else(Style::new, |colour| Style::new().fg(colour))
    }
}
