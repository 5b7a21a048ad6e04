//! The rule of `cp`, as a table and as properties.

use proptest::prelude::*;

use super::*;

fn side(text: &OsStr) -> Result<Side, EndpointError> {
    parse_side(text, "the source", &|_| false)
}

fn space(name: &str, path: &str) -> Side {
    Side::Space(SpacePath {
        name: SpaceName::new(name).unwrap(),
        path: path.into(),
    })
}

fn local(path: &str) -> Side {
    Side::Local(path.into())
}

#[test]
fn each_side_means_what_the_table_says() {
    for (text, expected) in [
        // The plain forms.
        ("-", Side::Stdio),
        ("web:/etc/hosts", space("web", "/etc/hosts")),
        ("web:notes.txt", space("web", "notes.txt")),
        ("web-1:a/b", space("web-1", "a/b")),
        ("0:x", space("0", "x")),
        ("notes.txt", local("notes.txt")),
        ("/tmp/x", local("/tmp/x")),
        (".", local(".")),
        ("..", local("..")),
        // A dash is only standard input when it is all there is.
        ("-x", local("-x")),
        ("./-", local("./-")),
        ("web:-", space("web", "-")),
        // Explicitly local.
        ("./a:b", local("./a:b")),
        ("/a:b", local("/a:b")),
        ("dir/a:b", local("dir/a:b")),
        ("../web:/x", local("../web:/x")),
        // Not a name before the colon.
        ("C:\\tmp\\a", local("C:\\tmp\\a")),
        ("My file: 2", local("My file: 2")),
        (":x", local(":x")),
        ("-a:x", local("-a:x")),
        ("a_b:x", local("a_b:x")),
        ("http://x/y", space("http", "//x/y")),
        // The first colon counts.
        ("web:a:b", space("web", "a:b")),
        ("test:111.json", space("test", "111.json")),
        // Homes.
        ("web:", space("web", ".")),
        ("web:.", space("web", ".")),
        ("web:~", space("web", ".")),
        ("web:~/", space("web", ".")),
        ("web:~/x", space("web", "x")),
        ("web:~//x", space("web", "x")),
        ("web:./~x", space("web", "./~x")),
        ("web:a~b", space("web", "a~b")),
        ("~/x:y", local("~/x:y")),
        // Slashes at the end are meant: "must be a folder".
        ("web:/tmp/", space("web", "/tmp/")),
        ("web:/", space("web", "/")),
        ("out/", local("out/")),
        // Odd but legal names.
        ("web:a b", space("web", "a b")),
        ("web:$(id)", space("web", "$(id)")),
        ("web:a\nb", space("web", "a\nb")),
        ("web:'\"", space("web", "'\"")),
    ] {
        assert_eq!(side(OsStr::new(text)), Ok(expected), "{text:?}");
    }
    let longest = "x".repeat(63);
    assert_eq!(
        side(OsStr::new(&format!("{longest}:y"))),
        Ok(space(&longest, "y"))
    );
    let too_long = format!("{}:y", "x".repeat(64));
    assert_eq!(side(OsStr::new(&too_long)), Ok(local(&too_long)));
}

#[test]
fn homes_of_others_and_empty_sides_are_refused() {
    assert!(matches!(
        side(OsStr::new("web:~root")),
        Err(EndpointError::OtherHome { .. })
    ));
    assert!(matches!(
        side(OsStr::new("web:~root/x")),
        Err(EndpointError::OtherHome { .. })
    ));
    assert_eq!(
        side(OsStr::new("")),
        Err(EndpointError::Empty { side: "the source" })
    );
}

#[test]
fn names_need_not_be_utf8() {
    let text = OsStr::from_bytes(b"web:/tmp/\xe4\xff");
    let Ok(Side::Space(path)) = side(text) else {
        panic!("a path in a Space")
    };
    assert_eq!(path.path.as_bytes(), b"/tmp/\xe4\xff");
    let text = OsStr::from_bytes(b"w\xe4b:/tmp");
    assert_eq!(side(text), Ok(Side::Local(text.into())));
}

#[test]
fn a_local_file_of_that_name_makes_it_ambiguous() {
    let there = |path: &Path| path == Path::new("space1:foo");
    let error = parse(OsStr::new("space1:foo"), OsStr::new("web:x"), there).unwrap_err();
    assert!(matches!(error, EndpointError::Ambiguous { .. }));
    assert_eq!(
        error.hints(),
        [
            "write ./space1:foo for the local file",
            "write space1:./foo for the path in the Space"
        ]
    );
    // Both hints work.
    assert!(parse(OsStr::new("./space1:foo"), OsStr::new("web:x"), there).is_ok());
    assert!(parse(OsStr::new("space1:./foo"), OsStr::new("x"), there).is_ok());
    // On the other side it is the same.
    assert!(parse(OsStr::new("x"), OsStr::new("space1:foo"), there).is_err());
    // A name that no Space can have is local, file or not.
    assert_eq!(
        parse_side(OsStr::new("C:\\x"), "", &|_| true),
        Ok(local("C:\\x"))
    );
}

#[test]
fn exactly_one_side_is_in_a_space() {
    let pair = |a: &str, b: &str| parse(OsStr::new(a), OsStr::new(b), |_| false);
    let web = SpacePath {
        name: SpaceName::new("web").unwrap(),
        path: "/x".into(),
    };
    assert_eq!(
        pair("-", "web:/x"),
        Ok(Copy::Upload {
            source: LocalEnd::Stdio,
            target: web.clone()
        })
    );
    assert_eq!(
        pair("a", "web:/x"),
        Ok(Copy::Upload {
            source: LocalEnd::Path("a".into()),
            target: web.clone()
        })
    );
    assert_eq!(
        pair("web:/x", "-"),
        Ok(Copy::Download {
            source: web.clone(),
            target: LocalEnd::Stdio
        })
    );
    assert_eq!(
        pair("web:/x", "b"),
        Ok(Copy::Download {
            source: web,
            target: LocalEnd::Path("b".into())
        })
    );
    for (a, b) in [("a", "b"), ("-", "-"), ("-", "a"), ("a", "-")] {
        assert!(
            matches!(pair(a, b), Err(EndpointError::BothLocal { .. })),
            "{a} {b}"
        );
    }
    assert!(matches!(
        pair("web:a", "web:b"),
        Err(EndpointError::BothSpaces { .. })
    ));
}

#[test]
fn a_name_with_a_small_fault_gets_a_hint() {
    let error = parse(OsStr::new("f"), OsStr::new("My_Box:/x"), |_| false).unwrap_err();
    let hints = error.hints().join("\n");
    assert!(
        hints.contains("\"My_Box:/x\" is taken for a local file"),
        "{hints}"
    );
}

fn any_text() -> impl Strategy<Value = OsString> {
    let pieces = prop_oneof![
        Just(b":".to_vec()),
        Just(b"/".to_vec()),
        Just(b"-".to_vec()),
        Just(b"~".to_vec()),
        Just(b".".to_vec()),
        Just(b"web".to_vec()),
        prop::collection::vec(1_u8..=255, 0..4),
    ];
    prop::collection::vec(pieces, 0..8).prop_map(|pieces| OsString::from_vec(pieces.concat()))
}

proptest! {
    #[test]
    fn nothing_is_lost_or_invented(text in any_text()) {
        match side(&text) {
            Ok(Side::Stdio) => prop_assert_eq!(text, OsString::from("-")),
            Ok(Side::Local(path)) => prop_assert_eq!(path.as_os_str(), text.as_os_str()),
            Ok(Side::Space(found)) => {
                prop_assert!(!found.path.is_empty());
                let after = text.as_bytes().strip_prefix(found.name.as_str().as_bytes());
                let after = after.and_then(|rest| rest.strip_prefix(b":"));
                let after = after.expect("the text starts with the name and a colon");
                let kept = found.path.as_bytes();
                prop_assert!(after.ends_with(kept) || kept == b".", "{:?}", text);
            }
            Err(EndpointError::Empty { .. }) => prop_assert!(text.is_empty()),
            Err(EndpointError::OtherHome { .. }) => {
                prop_assert!(text.as_bytes().windows(2).any(|pair| pair == b":~"));
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_dot_slash_is_always_local(text in any_text()) {
        let mut quoted = OsString::from("./");
        quoted.push(&text);
        prop_assert_eq!(parse_side(&quoted, "", &|_| true), Ok(Side::Local(quoted.clone().into())));
    }

    #[test]
    fn an_absolute_path_in_a_space_arrives_as_it_is(
        name in "[a-z0-9][a-z0-9-]{0,62}",
        path in prop::collection::vec(1_u8..=255, 0..20),
    ) {
        let mut text = OsString::from(format!("{name}:/"));
        text.push(OsStr::from_bytes(&path));
        let Ok(Side::Space(found)) = side(&text) else { return Err(TestCaseError::fail("no Space")) };
        prop_assert_eq!(found.name.as_str(), name);
        prop_assert_eq!(&found.path.as_bytes()[1..], path);
    }
}
