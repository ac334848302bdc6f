//! The book of `docs/`: built by mdBook, and every link of the built pages followed to its page and its heading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{child, workspace};

/// The version that is installed if there is none.
const VERSION: &str = "0.5.4";

/// Builds the book and checks it.
///
/// # Errors
/// When mdBook cannot be installed or refuses the book; dead links.
pub fn run(end: Instant) -> Result<(), String> {
    let root = workspace::built().join("book");
    let source = workspace::root().join("docs");
    child::run(
        Command::new(mdbook(end)?)
            .arg("build")
            .arg(source)
            .arg("--dest-dir")
            .arg(&root),
        end,
    )?;
    let mut pages = BTreeMap::new();
    read(&root, &root, &mut pages)?;
    let (links, lost) = follow(&pages);
    if !lost.is_empty() {
        return Err(format!("links that lead nowhere:\n  {}", lost.join("\n  ")));
    }
    let count = pages.values().filter(|text| !text.is_empty()).count();
    println!("{}: {count} pages, {links} links", root.join("index.html").display());
    Ok(())
}

/// The program; installed below `target/` unless there is one.
fn mdbook(end: Instant) -> Result<PathBuf, String> {
    let tools = workspace::built().join("tools");
    let ours = tools.join("bin/mdbook");
    for program in ["mdbook".into(), ours.clone()] {
        if child::output(Command::new(&program).arg("--version"), end).is_ok() {
            return Ok(program);
        }
    }
    // Not optimised: it compiles for longer than it runs.
    let version = ["install", "mdbook", "--debug", "--locked", "--version", VERSION];
    let little = ["--no-default-features", "--features", "search", "--root"];
    eprintln!("== installing mdBook {VERSION} below {}", tools.display());
    child::patiently(end, || {
        let mut install = workspace::cargo();
        child::run(install.args(version).args(little).arg(&tools), end)
    })
    .map_err(|why| format!("mdBook was not installed ({why}); by hand: cargo install mdbook"))?;
    Ok(ours)
}

/// The pages below `folder`, by their path from `root`.
fn read(root: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            read(root, &path, pages)?;
        } else {
            // Other files are link targets only.
            let is_page = path.extension().is_some_and(|ending| ending == "html");
            let text = if is_page {
                std::fs::read_to_string(&path).map_err(failed)?
            } else {
                String::new()
            };
            pages.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf(), text);
        }
    }
    Ok(())
}

/// The values of an attribute.
fn values<'a>(text: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    let rest = text.split(attribute).skip(1);
    rest.filter_map(|rest| rest.strip_prefix("=\"")?.split('"').next())
}

/// Number of links followed, and the dead ones.
fn follow(pages: &BTreeMap<PathBuf, String>) -> (usize, Vec<String>) {
    let ids: BTreeMap<&PathBuf, BTreeSet<&str>> = pages
        .iter()
        .map(|(page, text)| (page, values(text, " id").collect()))
        .collect();
    let (mut links, mut lost) = (0, Vec::new());
    for (page, text) in pages {
        // Both are copies of others, with links that are right at the root of a server.
        if page.ends_with("404.html") || page.ends_with("print.html") {
            continue;
        }
        for link in values(text, " href").chain(values(text, " src")) {
            if link.contains(':') || link.starts_with("//") {
                continue;
            }
            links += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                beside(page, file)
            };
            let found = ids
                .get(&target)
                .is_some_and(|ids| heading.is_empty() || ids.contains(heading));
            if !found {
                lost.push(format!("{}: {link}", page.display()));
            }
        }
    }
    (links, lost)
}

/// The file that `file` refers to on a page at `page`.
fn beside(page: &Path, file: &str) -> PathBuf {
    let mut target = page.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_found() {
        let page = |path: &str, text: &str| (PathBuf::from(path), text.to_string());
        let a = r##"<h1 id="top"></h1><a href="b/c.html#one">x</a><a href="#top">x</a>
            <a href="https://example.org/">x</a>"##;
        let c = r##"<h2 id="one"></h2><a href="../a.html">x</a><img src="../d.svg">
            <a href="../a.html#two">x</a><a href="e.html">x</a>"##;
        let pages = [page("a.html", a), page("b/c.html", c), page("d.svg", "")];
        let (links, lost) = follow(&pages.into_iter().collect());
        assert_eq!(links, 6);
        assert_eq!(lost, ["b/c.html: ../a.html#two", "b/c.html: e.html"]);
    }
}
