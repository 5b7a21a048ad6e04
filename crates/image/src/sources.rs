//! The distribution's own package sources of this host.
//!
//! Guests are made from these alone. What else a person added for the host (compilers, cloud
//! tools) has no business in a Space, and one such source that does not answer would fail the build.

use std::path::Path;

use fs_err as fs;

use crate::host::{Family, Host};

/// One package source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    uri: String,
    suite: String,
    components: Vec<String>,
    signed_by: Option<String>,
}

/// The text of a `sources.list` with the host's own sources, or the public ones if none is found.
pub(crate) fn own_sources(host: &Host) -> String {
    own_sources_in(Path::new("/etc/apt"), host)
}

fn own_sources_in(etc_apt: &Path, host: &Host) -> String {
    let mut sources: Vec<Source> = read_all(etc_apt)
        .into_iter()
        .filter(|source| source.is_own(host))
        .map(resolve_mirror_file)
        .collect();
    if !sources
        .iter()
        .any(|source| source.suite == host.codename || source.is_rolling())
    {
        sources = public_sources(host);
    }
    sources.iter().map(|source| source.line(host)).collect()
}

/// The suite to bootstrap: the first source's that is no updates or security suite.
pub(crate) fn main_suite(sources_list: &str, host: &Host) -> String {
    sources_list
        .lines()
        .filter_map(|line| parse_line(line).pop())
        .map(|source| source.suite)
        .find(|suite| !suite.contains(['-', '/']))
        .unwrap_or_else(|| host.codename.clone())
}

impl Source {
    fn is_rolling(&self) -> bool {
        ["stable", "testing", "unstable", "sid"].contains(&self.suite.as_str())
    }

    fn is_own(&self, host: &Host) -> bool {
        let base = self.suite.split(['-', '/']).next().unwrap_or_default();
        let rest = &self.suite[base.len()..];
        let suite_fits = (base == host.codename || self.is_rolling())
            && ["", "-updates", "-security", "/updates"].contains(&rest);
        let key_fits = self
            .signed_by
            .as_deref()
            .is_none_or(|key| key.contains("debian-archive") || key.contains("ubuntu-archive"));
        let transport_fits = ["http://", "https://", "mirror+file:", "file:"]
            .iter()
            .any(|scheme| self.uri.starts_with(scheme));
        suite_fits && key_fits && transport_fits && self.components.iter().any(|c| c == "main")
    }

    fn line(&self, host: &Host) -> String {
        let keyring = match host.family {
            Family::Ubuntu => "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
            Family::Debian | Family::Other => "/usr/share/keyrings/debian-archive-keyring.gpg",
        };
        let signed_by = self.signed_by.as_deref().unwrap_or(keyring);
        let components: Vec<&str> = self
            .components
            .iter()
            .map(String::as_str)
            .filter(|component| ["main", "universe"].contains(component))
            .collect();
        format!(
            "deb [signed-by={signed_by}] {} {} {}\n",
            self.uri,
            self.suite,
            components.join(" ")
        )
    }
}

/// A source that names a file with mirrors means nothing inside the guest: take the first mirror.
fn resolve_mirror_file(mut source: Source) -> Source {
    let mirror = source
        .uri
        .strip_prefix("mirror+file:")
        .and_then(|path| fs::read_to_string(Path::new("/").join(path.trim_start_matches('/'))).ok())
        .and_then(|text| {
            text.lines()
                .filter_map(|line| line.split_whitespace().next())
                .find(|word| word.contains("://"))
                .map(str::to_owned)
        });
    if let Some(mirror) = mirror {
        source.uri = mirror;
    }
    source
}

fn public_sources(host: &Host) -> Vec<Source> {
    let make = |uri: &str, suffix: &str, components: &[&str]| Source {
        uri: uri.to_owned(),
        suite: format!("{}{suffix}", host.codename),
        components: components
            .iter()
            .map(|&component| component.to_owned())
            .collect(),
        signed_by: None,
    };
    match host.family {
        Family::Ubuntu => {
            let uri = if cfg!(target_arch = "x86_64") {
                "http://archive.ubuntu.com/ubuntu"
            } else {
                "http://ports.ubuntu.com/ubuntu-ports"
            };
            ["", "-updates", "-security"]
                .map(|suffix| make(uri, suffix, &["main", "universe"]))
                .to_vec()
        }
        Family::Debian | Family::Other => vec![
            make("http://deb.debian.org/debian", "", &["main"]),
            make("http://deb.debian.org/debian", "-updates", &["main"]),
            make(
                "http://deb.debian.org/debian-security",
                "-security",
                &["main"],
            ),
        ],
    }
}

fn read_all(etc_apt: &Path) -> Vec<Source> {
    let mut files = vec![etc_apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(etc_apt.join("sources.list.d")) {
        let mut parts: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        parts.sort();
        files.append(&mut parts);
    }
    let mut sources = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources.extend(text.lines().flat_map(parse_line)),
            Some("sources") => sources.extend(text.split("\n\n").flat_map(parse_stanza)),
            _ => {}
        }
    }
    sources
}

/// Reads one line of the old format: `deb [option=value …] URI suite component…`.
fn parse_line(line: &str) -> Vec<Source> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let Some(rest) = line.strip_prefix("deb ") else {
        return Vec::new();
    };
    let (options, rest) = match rest.trim_start().strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => ("", rest),
    };
    let signed_by = options
        .split_whitespace()
        .find_map(|option| option.strip_prefix("signed-by="))
        .map(str::to_owned);
    let mut words = rest.split_whitespace().map(str::to_owned);
    match (words.next(), words.next()) {
        (Some(uri), Some(suite)) => {
            vec![Source {
                uri,
                suite,
                components: words.collect(),
                signed_by,
            }]
        }
        _ => Vec::new(),
    }
}

/// Reads one paragraph of the new format; it may stand for several sources.
fn parse_stanza(stanza: &str) -> Vec<Source> {
    let lines = || stanza.lines().filter(|line| !line.starts_with('#'));
    let field = |name: &str| {
        lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    };
    let words = |name: &str| field(name).unwrap_or_default().split_whitespace();
    let is_enabled = !field("Enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"));
    if !is_enabled || !words("Types").any(|kind| kind == "deb") {
        return Vec::new();
    }
    // A key that stands in the paragraph itself is nobody's archive keyring.
    let signed_by = field("Signed-By").map(str::to_owned);
    let components: Vec<String> = words("Components").map(str::to_owned).collect();
    words("URIs")
        .flat_map(|uri| words("Suites").map(move |suite| (uri.to_owned(), suite.to_owned())))
        .map(|(uri, suite)| Source {
            uri,
            suite,
            components: components.clone(),
            signed_by: signed_by.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian() -> Host {
        Host {
            family: Family::Debian,
            id: "debian".into(),
            codename: "bookworm".into(),
        }
    }

    #[test]
    fn keeps_the_distributions_sources_alone() {
        let etc = tempfile::tempdir().unwrap();
        let parts = etc.path().join("sources.list.d");
        std::fs::create_dir(&parts).unwrap();
        std::fs::write(
            etc.path().join("sources.list"),
            "# comment\ndeb-src http://a/debian bookworm main\n\
             deb [arch=amd64] http://mirror.example/debian bookworm main contrib\n\
             deb cdrom:[Debian]/ bookworm main\n",
        )
        .unwrap();
        std::fs::write(
            parts.join("debian.sources"),
            "# comment\nTypes: deb deb-src\nURIs: http://sec.example/debian-security\n\
             Suites: bookworm-security\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n\
             Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: bookworm\n\
             Components: main\n",
        )
        .unwrap();
        let others = "deb [signed-by=/usr/share/keyrings/tail.gpg] https://t.example/debian bookworm main\n\
                      deb https://d.example/linux/debian bookworm stable\n\
                      deb https://c.example/apt cloud-bookworm main\n\
                      deb http://b.example/debian bookworm-backports main\n";
        std::fs::write(parts.join("others.list"), others).unwrap();
        std::fs::write(
            parts.join("x.list.disabled"),
            "deb http://z.example/ bookworm main\n",
        )
        .unwrap();
        let text = own_sources_in(etc.path(), &debian());
        let key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
        assert_eq!(
            text,
            format!(
                "deb {key} http://mirror.example/debian bookworm main\n\
                 deb {key} http://sec.example/debian-security bookworm-security main\n"
            )
        );
        assert_eq!(main_suite(&text, &debian()), "bookworm");
    }

    #[test]
    fn falls_back_to_the_public_sources() {
        let etc = tempfile::tempdir().unwrap();
        let text = own_sources_in(etc.path(), &debian());
        assert!(
            text.contains("http://deb.debian.org/debian bookworm main\n"),
            "{text}"
        );
        assert!(
            text.contains("debian-security bookworm-security main\n"),
            "{text}"
        );
        let noble = Host {
            family: Family::Ubuntu,
            id: "ubuntu".into(),
            codename: "noble".into(),
        };
        let text = own_sources_in(etc.path(), &noble);
        assert!(text.contains("noble-updates main universe\n"), "{text}");
        assert!(text.contains("ubuntu-archive-keyring"), "{text}");
    }

    #[test]
    fn a_mirror_file_is_replaced_by_its_first_mirror() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("mirrors");
        std::fs::write(
            &list,
            "# ours\nhttps://one.example/debian\tpriority:1\nhttps://two/\n",
        )
        .unwrap();
        let source = parse_line(&format!(
            "deb mirror+file://{} bookworm main",
            list.display()
        ));
        let source = resolve_mirror_file(source.into_iter().next().unwrap());
        assert_eq!(source.uri, "https://one.example/debian");
    }
}
