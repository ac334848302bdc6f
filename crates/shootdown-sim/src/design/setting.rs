//! A value of an axis: how it is written, read and checked.

use std::fmt;

/// A value: one of an axis's words, with a number if the word takes one; or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Empty for a plain number.
    pub(super) word: &'static str,
    /// 0 if the word takes no number.
    pub(super) number: u64,
    /// Whether the value has a number.
    numbered: bool,
}

impl Setting {
    /// A word alone.
    pub(super) const fn word(word: &'static str) -> Self {
        Setting {
            word,
            number: 0,
            numbered: false,
        }
    }

    /// A word with its number.
    pub(super) const fn with(word: &'static str, number: u64) -> Self {
        Setting {
            word,
            number,
            numbered: true,
        }
    }

    /// A plain number.
    pub(super) const fn number(number: u64) -> Self {
        Self::with("", number)
    }

    /// The number, if the value is a plain number.
    pub fn as_number(&self) -> Option<u64> {
        self.word.is_empty().then_some(self.number)
    }
}

/// The form that parses back to the same value.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.word, self.numbered) {
            ("", _) => write!(f, "{}", self.number),
            (word, true) => write!(f, "{word}:{}", self.number),
            (word, false) => f.write_str(word),
        }
    }
}

/// A word that an axis takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The word.
    pub word: &'static str,
    /// Name, least and most of the number that follows it after a colon, if any.
    pub argument: Option<(&'static str, u64, u64)>,
}

impl Choice {
    pub(super) const fn plain(word: &'static str) -> Self {
        Choice { word, argument: None }
    }

    pub(super) const fn with(word: &'static str, name: &'static str, least: u64, most: u64) -> Self {
        Choice {
            word,
            argument: Some((name, least, most)),
        }
    }
}

/// The values that an axis takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// One of some words.
    Choices(&'static [Choice]),
    /// A whole number.
    Numbers {
        /// Smallest.
        least: u64,
        /// Largest.
        most: u64,
        /// Whether only powers of two are accepted.
        power_of_two: bool,
    },
}

impl Values {
    /// The value that `text` stands for, if the axis takes it.
    pub(super) fn read(&self, text: &str) -> Option<Setting> {
        match *self {
            Values::Numbers {
                least,
                most,
                power_of_two,
            } => whole(text)
                .filter(|number| (least..=most).contains(number) && (!power_of_two || number.is_power_of_two()))
                .map(Setting::number),
            Values::Choices(choices) => {
                let (word, number) = match text.split_once(':') {
                    Some((word, number)) => (word, Some(whole(number)?)),
                    None => (text, None),
                };
                let word = match word.trim().replace('_', "-") {
                    flag if flag == "1" => "true".to_string(),
                    flag if flag == "0" => "false".to_string(),
                    word => word,
                };
                let choice = choices.iter().find(|choice| choice.word == word)?;
                match (choice.argument, number) {
                    (None, None) => Some(Setting::word(choice.word)),
                    (Some((_, least, most)), Some(number)) if (least..=most).contains(&number) => {
                        Some(Setting::with(choice.word, number))
                    }
                    _ => None,
                }
            }
        }
    }
}

/// A whole number, also as `64.0` or `1e3`.
fn whole(text: &str) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
    })
}

/// The accepted values, for error messages and lists.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Values::Numbers {
                least,
                most,
                power_of_two: false,
            } => write!(f, "a whole number from {least} to {most}"),
            Values::Numbers { least, most, .. } => write!(f, "a power of two from {least} to {most}"),
            Values::Choices(choices) => {
                for (index, choice) in choices.iter().enumerate() {
                    let separator = match index {
                        0 => "",
                        _ if index + 1 == choices.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{separator}{}", choice.word)?;
                    if let Some((name, least, most)) = choice.argument {
                        write!(f, ":{name} ({least} to {most})")?;
                    }
                }
                Ok(())
            }
        }
    }
}
