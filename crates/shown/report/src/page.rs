//! Pages: one HTML text each that loads nothing from anywhere, made of the same parts over one template.

use std::fmt::{Display, Write};

use askama::Template;
use model::{run::Machine, sweep::Published};

use crate::{chart::svg::escaped, conditions::Conditions};

/// The heading under which the figures of others are shown, in text and on the page.
pub const PUBLISHED: &str = "Published by others, on other hardware";

/// Errors of building a page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("cannot build the page: {0}; this is a fault of evenkeel")]
    Template(#[from] askama::Error),
}

model::classified!(PageError: Internal);

#[derive(Template)]
#[template(path = "page.html")]
struct Base<'a> {
    title: &'a str,
    main: &'a str,
}

/// The classes of a column's head and of its cells, and its name. Behind `>` are numbers, which align right, behind `=` names, which are not
/// broken, behind `<` sentences, which have a least width; `~` and `>>` are words and numbers that are left out where there is little room.
fn column(head: &str) -> ([&'static str; 2], &str) {
    let kinds = [(">>", ["n wide"; 2]), (">", ["n"; 2]), ("=", ["", "name"]), ("<", ["", "long"]), ("~", ["wide"; 2])];
    let found = kinds.into_iter().find_map(|(mark, classes)| Some((classes, head.strip_prefix(mark)?)));
    found.unwrap_or(([""; 2], head))
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Html(String);

impl<T: Display> From<T> for Html {
    fn from(text: T) -> Self {
        Self(escaped(&text.to_string()))
    }
}

impl Html {
    /// Text in an element, such as `strong`.
    pub(crate) fn within(element: &str, text: impl Display) -> Self {
        let mut html = Self::default();
        html.element(element, "", escaped(&text.to_string()));
        html
    }

    /// Text as a piece of a page.
    pub(crate) fn text(text: impl Display) -> String {
        escaped(&text.to_string())
    }

    /// Text that explains what stands before it.
    pub(crate) fn quiet_span(text: impl Display) -> String {
        format!("<span class=\"quiet\">{}</span>", marked(text))
    }

    fn element(&mut self, element: &str, class: &str, inner: impl Display) {
        let _ = write!(self.0, "<{element}{}>{inner}</{element}>", attribute("class", class));
    }

    fn line(&mut self, element: &str, class: &str, inner: impl Display) {
        self.element(element, class, inner);
        self.0.push('\n');
    }

    /// A heading of the second or third level.
    pub(crate) fn heading(&mut self, level: u8, text: impl Display) {
        self.line(&format!("h{level}"), "", escaped(&text.to_string()));
    }

    /// A sentence. What stands between backticks is code.
    pub(crate) fn say(&mut self, sentence: impl Display) {
        self.line("p", "", marked(sentence));
    }

    pub(crate) fn quiet(&mut self, sentence: impl Display) {
        self.line("p", "quiet", marked(sentence));
    }

    /// A sentence that warns, behind a word in bold.
    pub(crate) fn warn(&mut self, word: &str, sentence: impl Display) {
        self.warn_of(word, [sentence.to_string()].into_iter());
    }

    /// Several sentences that warn, each behind the same word in bold.
    pub(crate) fn warn_of(&mut self, word: &str, sentences: impl Iterator<Item = String>) {
        let lines: Vec<String> = sentences.map(|sentence| format!("{}{}", bold(word), marked(sentence))).collect();
        self.line("p", "warning", lines.join("<br>"));
    }

    /// The warning of a machine that was busy.
    pub(crate) fn busy(&mut self, why: Option<&str>) {
        why.into_iter().for_each(|why| self.warn("The machine was busy.", format_args!("{why}.")));
    }

    /// The main result; `void`: it bears no verdict.
    pub(crate) fn conclude(&mut self, conclusion_text: impl Display, void: bool) {
        self.line("p", conclusion(void), marked(conclusion_text));
    }

    /// A conclusion of several sentences.
    pub(crate) fn conclude_all(&mut self, conclusion_text: &[String], void: bool) {
        let inner: String = conclusion_text.iter().map(|line| format!("<p>{}</p>\n", marked(line))).collect();
        self.line("div", conclusion(void), inner);
    }

    pub(crate) fn chart(&mut self, chart: &str) {
        self.line("div", "chart", chart);
    }

    /// Charts beside each other, two in a row; those of different heights begin at one height with `top`.
    pub(crate) fn pair(&mut self, top: bool, sections: impl IntoIterator<Item = Section>) {
        let inner: String = sections.into_iter().map(|section| section.html().0).collect();
        self.line("div", if top { "pair top" } else { "pair" }, format_args!("\n{inner}"));
    }

    /// A pair with a heading; nothing without a chart.
    pub(crate) fn pair_below(&mut self, heading: &str, top: bool, sections: Vec<Section>) {
        if !sections.is_empty() {
            self.heading(2, heading);
            self.pair(top, sections);
        }
    }

    pub(crate) fn table<R: IntoIterator<Item: Into<Self>>>(
        &mut self,
        heads: &[impl AsRef<str>],
        rows: impl IntoIterator<Item = R>,
    ) {
        let rows: String = rows.into_iter().map(|row| cells(heads, "", row)).collect();
        self.table_of(heads, &rows);
    }

    /// A table whose last row is the sum of the others.
    pub(crate) fn table_with_sum<R: IntoIterator<Item: Into<Self>>>(
        &mut self,
        heads: &[impl AsRef<str>],
        rows: Vec<R>,
    ) {
        let last = rows.len().saturating_sub(1);
        let class = |at| if at == last { "sum" } else { "" };
        let rows: String = rows.into_iter().enumerate().map(|(at, row)| cells(heads, class(at), row)).collect();
        self.table_of(heads, &rows);
    }

    /// A table with its heading; nothing without a row.
    pub(crate) fn table_below<const N: usize>(&mut self, heading: &str, heads: &[&str; N], rows: Vec<[String; N]>) {
        if !rows.is_empty() {
            self.heading(2, heading);
            self.table(heads, rows);
        }
    }

    /// The figures of others, with a heading and a sentence about them; nothing without any.
    pub(crate) fn published(&mut self, about: &str, heads: &[&str; 4], figures: &[Published]) {
        if !figures.is_empty() {
            self.heading(2, PUBLISHED);
            self.quiet(about);
            let row = |p: &Published| [&p.what, &p.standard, &p.optimised, &p.citation].map(Self::from);
            self.table(heads, figures.iter().map(row));
        }
    }

    /// A table of finished rows.
    pub(crate) fn table_of(&mut self, heads: &[impl AsRef<str>], rows: &str) {
        let _ = writeln!(self.0, "<div class=\"scroll\">{}</div>", table(heads, rows));
    }

    /// A part that can be opened.
    pub(crate) fn details(&mut self, open: bool, summary: &str, more: Option<String>, inner: &Self) {
        let open = if open { " open" } else { "" };
        let more =
            more.map_or_else(String::new, |more| format!(" {}", Self::quiet_span(format_args!("\u{2014} {more}"))));
        let Self(inner) = inner;
        let _ = writeln!(self.0, "<details{open}>\n<summary>{}{more}</summary>\n{inner}</details>", escaped(summary));
    }

    /// Settings, a line of code each.
    pub(crate) fn settings(&mut self, lines: &[String]) {
        lines.iter().for_each(|line| self.line("p", "", format_args!("<code>{}</code>", escaped(line))));
    }

    pub(crate) fn list(&mut self, element: &str, lines: &[String]) {
        let inner: String = lines.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
        self.line(element, "", inner);
    }

    /// Names and what they mean.
    pub(crate) fn terms<N: Display>(&mut self, terms: impl IntoIterator<Item = (N, String)>) {
        let term =
            |(name, text): (N, String)| format!("<dt>{}</dt><dd>{}</dd>", escaped(&name.to_string()), marked(text));
        let inner: String = terms.into_iter().map(term).collect();
        self.line("dl", "", format_args!("\n{inner}\n"));
    }

    /// A piece as it is.
    pub(crate) fn push(&mut self, html: impl Display) {
        let _ = write!(self.0, "{html}");
    }

    /// A page that consists of this.
    pub(crate) fn page(&self, title: &str) -> Result<String, PageError> {
        Ok(Base { title, main: &self.0 }.render()?)
    }
}

/// A page of a run: its heading, and the verb, the machine and the time below it.
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) main: Html,
}

impl Page {
    pub(crate) fn new(verb: &str, heading: impl Display, (machine, when): (&Machine, &str), more: &str) -> Self {
        let title = format!("evenkeel {verb} on {}", machine.hostname);
        let mut main = Html::default();
        main.heading(1, heading);
        main.quiet(format_args!("{title}, {when}{more}"));
        Self { title, main }
    }

    pub(crate) fn end(self, conditions: Conditions) -> Result<String, PageError> {
        self.end_with(&[], conditions)
    }

    /// [`Page::end`] with sentences about what figures mean.
    pub(crate) fn end_with(mut self, meanings: &[&str], conditions: Conditions) -> Result<String, PageError> {
        self.main.heading(2, "Conditions");
        meanings.iter().for_each(|meaning| self.main.quiet(meaning));
        self.main.terms(conditions);
        self.main.page(&self.title)
    }
}

/// A chart with its heading, and with what it shows.
pub(crate) struct Section {
    level: u8,
    heading: String,
    what: Html,
    chart: String,
}

impl Section {
    pub(crate) fn new(level: u8, heading: impl Into<String>, what: impl Display, chart: impl Into<String>) -> Self {
        let (mut html, what) = (Html::default(), what.to_string());
        if !what.is_empty() {
            html.quiet(what);
        }
        Self { level, heading: heading.into(), what: html, chart: chart.into() }
    }

    /// The section with settings.
    pub(crate) fn with(mut self, settings: &[String]) -> Self {
        self.what.settings(settings);
        self
    }

    fn html(self) -> Html {
        let mut inner = Html::default();
        if !self.heading.is_empty() {
            inner.heading(self.level, self.heading);
        }
        inner.push(self.what.0);
        inner.chart(&self.chart);
        let mut html = Html::default();
        html.line("section", "", format_args!("\n{}", inner.0));
        html
    }
}

fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" {name}=\"{value}\"") }
}

fn conclusion(void: bool) -> &'static str {
    if void { "conclusion void" } else { "conclusion" }
}

fn bold(word: &str) -> String {
    if word.is_empty() { String::new() } else { format!("<strong>{}</strong> ", escaped(word)) }
}

pub(crate) fn cells<C: Into<Html>>(heads: &[impl AsRef<str>], class: &str, row: impl IntoIterator<Item = C>) -> String {
    let cell = |(head, cell): (_, C)| {
        let ([_, class], _) = column(AsRef::as_ref(head));
        format!("<td{}>{}</td>", attribute("class", class), cell.into().0)
    };
    let inner: String = heads.iter().zip(row).map(cell).collect();
    format!("<tr{}>{inner}</tr>\n", attribute("class", class))
}

/// A table of finished rows, which does not scroll.
pub(crate) fn table(heads: &[impl AsRef<str>], rows: &str) -> String {
    let head = |head| {
        let ([class, _], name) = column(AsRef::as_ref(head));
        format!("<th{}>{}</th>", attribute("class", class), escaped(name))
    };
    let heads: String = heads.iter().map(head).collect();
    format!("<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table>")
}

/// A sentence of a terminal as HTML: what stands between backticks is code.
pub(crate) fn marked(sentence: impl Display) -> String {
    let sentence = escaped(&sentence.to_string());
    let parts: Vec<&str> = sentence.split('`').collect();
    let mut html = String::with_capacity(sentence.len());
    for (i, part) in parts.iter().enumerate() {
        html += match (i % 2, i + 1 < parts.len()) {
            (0, _) => "",
            (_, true) => "<code>",
            (_, false) => "`",
        };
        html += part;
        html += if i % 2 == 1 && i + 1 < parts.len() { "</code>" } else { "" };
    }
    html
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn commands_are_code_and_no_sentence_is_markup() {
        let run = "run `evenkeel link run -- <b>`, then `top`.";
        assert_eq!(marked(run), "run <code>evenkeel link run -- &lt;b&gt;</code>, then <code>top</code>.");
        assert_eq!(marked("one ` is a mark; <b>"), "one ` is a mark; &lt;b&gt;");
        assert_eq!(marked("`a` and ` alone"), "<code>a</code> and ` alone");
    }
}
