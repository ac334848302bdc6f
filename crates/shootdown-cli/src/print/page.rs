//! The frame of every page: the head, the style sheet, the switch between light and dark, and escaped text.
//!
//! Pages are written as well-formed XML, so that a test can parse them, and load nothing from elsewhere.

use crate::print::style;

/// Follows the system's colour scheme until it is pressed; without scripts there is no button and the system decides.
const SWITCH: &str = "\
<button type=\"button\" class=\"theme\" hidden=\"hidden\" title=\"Light or dark\">light / dark</button>
<script>
(function () {
  var root = document.documentElement, button = document.querySelector('button.theme');
  button.hidden = false;
  button.onclick = function () {
    var dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
  };
})();
</script>
";

/// A whole page. `title` is text; `style` and `body` are inserted unchanged.
pub fn render(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{0} — Shootdown</title>\n\
         <style>\n{1}{style}</style>\n</head>\n<body>\n{SWITCH}<h1>{0}</h1>\n{body}</body>\n</html>\n",
        escape(title),
        style::sheet(),
    )
}

/// Text escaped for HTML, in elements and in quoted attributes. Control characters, which XML cannot hold, are dropped.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            _ if c.is_control() => {}
            _ => escaped.push(c),
        }
    }
    escaped
}

/// [`escape`]d text in which text between backticks is code.
pub fn prose(text: &str) -> String {
    let mut html = String::new();
    let parts: Vec<&str> = text.split('`').collect();
    for (index, part) in parts.iter().enumerate() {
        let part_html = escape(part);
        // An unpaired mark is text.
        match index % 2 {
            1 if index + 1 < parts.len() => html.push_str(&format!("<code>{part_html}</code>")),
            1 => html.push_str(&format!("`{part_html}")),
            _ => html.push_str(&part_html),
        }
    }
    html
}

/// The first letter as a capital.
pub fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

/// Parses a page and checks the common properties: well-formed, one switch, nothing from elsewhere.
#[cfg(test)]
pub fn checked(page: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let document = roxmltree::Document::parse_with_options(page, options).expect("well-formed");
    for node in document.descendants() {
        for name in ["src", "href", "data", "action", "poster", "srcset"] {
            let elsewhere = node
                .attribute(name)
                .filter(|value| !value.starts_with('#') || value.len() < 2);
            assert_eq!(elsewhere, None, "{name} of {}", node.tag_name().name());
        }
    }
    let scripts = document
        .descendants()
        .filter(|node| node.has_tag_name("script"))
        .count();
    assert_eq!(scripts, 1, "the switch and nothing else");
    let own = page.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
    for forbidden in ["http:", "https:", "<link", "url(", "@import", "fetch(", "XMLHttp"] {
        assert!(!own.contains(forbidden), "{forbidden}");
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped() {
        assert_eq!(
            escape("<a href=\"x\">&\u{1b}[1m"),
            "&lt;a href=&quot;x&quot;&gt;&amp;[1m"
        );
        let page = render("a <b> & c", "", "<p>one</p>");
        let document = checked(&page);
        let heading = document.descendants().find(|node| node.has_tag_name("h1"));
        assert_eq!(heading.and_then(|node| node.text()), Some("a <b> & c"));
    }

    #[test]
    fn paired_backticks_become_code() {
        assert_eq!(prose("`a<b` and `c`"), "<code>a&lt;b</code> and <code>c</code>");
        assert_eq!(prose("5` of 6"), "5` of 6");
    }

    #[test]
    #[should_panic(expected = "src of img")]
    fn page_with_an_external_image_is_refused() {
        checked(&render("a", "", "<img src=\"//elsewhere/x.png\"/>"));
    }
}
