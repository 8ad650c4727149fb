//! How an answer is shown: as a table for people, or as a document for programs.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::Table;
use serde::Serialize;

use crate::failure::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The columns that matter most
    Table,
    /// Every column
    Wide,
    /// The document as the server sent it
    Json,
    /// The same document as YAML
    Yaml,
    /// Only the names, one a line
    Name,
}

/// A thing that can stand in a table.
pub trait Row: Sized + 'static {
    const COLUMNS: &'static [Column<Self>];

    /// What other commands take for it.
    fn name(&self) -> &str;
}

pub struct Column<T> {
    heading: &'static str,
    wide: bool,
    cell: fn(&T) -> String,
}

impl<T> Column<T> {
    pub const fn new(heading: &'static str, cell: fn(&T) -> String) -> Self {
        Column { heading, wide: false, cell }
    }

    /// A column that only `-o wide` shows.
    pub const fn wide(heading: &'static str, cell: fn(&T) -> String) -> Self {
        Column { heading, wide: true, cell }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Output {
    chosen: Option<Format>,
    terminal: bool,
}

impl Output {
    pub fn new(chosen: Option<Format>) -> Self {
        Output { chosen, terminal: io::stdout().is_terminal() }
    }

    pub fn is_json(self) -> bool {
        self.chosen == Some(Format::Json)
    }

    pub fn one<T: Row + Serialize>(self, item: &T) -> Result<(), Failure> {
        self.list(item, std::slice::from_ref(item))
    }

    /// Shows `rows` in a table, or the document that they stand in.
    pub fn list<T: Row>(self, document: &impl Serialize, rows: &[T]) -> Result<(), Failure> {
        let format = self.chosen.unwrap_or(Format::Table);
        if rows.is_empty() && matches!(format, Format::Table | Format::Wide) {
            notice("Nothing found.");
            return Ok(());
        }
        write(rendered(format, document, rows)?.as_bytes())
    }

    /// Shows what was just made; a script that says nothing else wants its id.
    pub fn created<T: Row + Serialize>(self, item: &T, id: &str) -> Result<(), Failure> {
        if self.chosen.is_none() && !self.terminal {
            write(format!("{id}\n").as_bytes())
        } else {
            self.one(item)
        }
    }

    /// Shows what is told only once: alone, so that a script can keep it, or in its document.
    pub fn secret(self, document: &impl Serialize, secret: &str) -> Result<(), Failure> {
        match self.chosen {
            Some(format @ (Format::Json | Format::Yaml)) => {
                write(rendered_document(format, document)?.as_bytes())
            }
            _ => write(format!("{}\n", printable(secret)).as_bytes()),
        }
    }

    /// Whether a person reads along, and not a program that wants a document or names.
    pub fn is_table(self) -> bool {
        matches!(self.chosen, None | Some(Format::Table | Format::Wide))
    }

    /// For what has no table; decided before the request, which may change something.
    pub fn for_body(self) -> Result<BodyOutput, Failure> {
        match self.chosen {
            Some(format @ (Format::Json | Format::Yaml)) => Ok(BodyOutput::Document(format)),
            Some(_) => Err(Failure::Usage("there is no table for this; use -o json or -o yaml".to_owned())),
            None if self.terminal => Ok(BodyOutput::Document(Format::Json)),
            None => Ok(BodyOutput::AsItIs),
        }
    }
}

pub enum BodyOutput {
    AsItIs,
    Document(Format),
}

impl BodyOutput {
    pub fn show(self, body: &[u8]) -> Result<(), Failure> {
        // YAML's value keeps the order in which the server wrote the members; JSON's sorts them.
        match (self, serde_json::from_slice::<yaml_serde::Value>(body)) {
            (BodyOutput::Document(format), Ok(document)) => {
                write(rendered_document(format, &document)?.as_bytes())
            }
            _ => write(body),
        }
    }
}

/// Writes data to standard output; nothing else does.
pub fn write(data: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(data).and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Tells the user something beside the data.
pub fn notice(text: &str) {
    // Where standard error is closed there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{text}");
}

/// The text without control characters, which could steer the terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect()
}

fn rendered<T: Row>(format: Format, document: &impl Serialize, rows: &[T]) -> Result<String, Failure> {
    match format {
        Format::Table => {
            Ok(table(&T::COLUMNS.iter().filter(|column| !column.wide).collect::<Vec<_>>(), rows))
        }
        Format::Wide => Ok(table(&T::COLUMNS.iter().collect::<Vec<_>>(), rows)),
        Format::Name => Ok(rows.iter().map(|row| printable(row.name()) + "\n").collect()),
        Format::Json | Format::Yaml => rendered_document(format, document),
    }
}

fn rendered_document(format: Format, document: &impl Serialize) -> Result<String, Failure> {
    if format == Format::Yaml {
        return yaml_serde::to_string(document).map_err(|error| Failure::Output(io::Error::other(error)));
    }
    let text = serde_json::to_string_pretty(document).map_err(|error| Failure::Output(error.into()))?;
    Ok(text + "\n")
}

fn table<T>(columns: &[&Column<T>], rows: &[T]) -> String {
    let mut table = Table::new();
    table.set_header(columns.iter().map(|column| column.heading));
    table.add_rows(rows.iter().map(|row| columns.iter().map(|column| printable(&(column.cell)(row)))));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.load_style(comfy_table::presets::NOTHING);
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::{Column, Format, Row, printable, rendered};

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Car {
        plate: &'static str,
        top_speed: u32,
    }

    impl Row for Car {
        const COLUMNS: &'static [Column<Self>] = &[
            Column::new("PLATE", |car| car.plate.to_owned()),
            Column::wide("SPEED", |car| car.top_speed.to_string()),
        ];

        fn name(&self) -> &str {
            self.plate
        }
    }

    #[test]
    fn an_answer_is_shown_in_every_format() {
        let cars = [Car { plate: "S-PA 1", top_speed: 250 }, Car { plate: "名", top_speed: 90 }];

        for (format, expected) in [
            (Format::Table, "PLATE\nS-PA 1\n名\n"),
            (Format::Wide, "PLATE   SPEED\nS-PA 1  250\n名      90\n"),
            (Format::Name, "S-PA 1\n名\n"),
            (Format::Yaml, "plate: S-PA 1\ntopSpeed: 250\n"),
            (Format::Json, "{\n  \"plate\": \"S-PA 1\",\n  \"topSpeed\": 250\n}\n"),
        ] {
            assert_eq!(rendered(format, &cars[0], &cars).expect("cars can be shown"), expected, "{format:?}");
        }
    }

    #[test]
    fn no_answer_steers_the_terminal() {
        for (text, expected) in [
            ("Größe 名 ✓", "Größe 名 ✓"),
            ("\u{1b}[2Jgone", "\u{fffd}[2Jgone"),
            ("c1: \u{9b}2J", "c1: \u{fffd}2J"),
            ("two\nlines", "two\u{fffd}lines"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }
}
