//! Machine files.

use shootdown_sim::model::Model;

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let model = match Model::parse(text, "some.toml") {
        Ok(model) => model,
        Err(error) => {
            let lines = text.lines().count().max(1);
            assert!(error.to_string().starts_with("some.toml"), "{error}");
            assert!(!error.expected.is_empty(), "an error says what is expected");
            // One past the last line is where something is missing.
            assert!(error.line.is_none_or(|line| (1..=lines + 1).contains(&line)), "{error}");
            return;
        }
    };
    let written = model.to_toml("written\nback");
    let read = Model::parse(&written, "written.toml").unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert_eq!(read.to_toml("written\nback"), written);
    let numbers = |model: &Model| {
        model
            .parameters()
            .map(|parameter| (parameter.path, parameter.value))
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(&read), numbers(&model));
    for (path, value) in numbers(&model) {
        let same = model
            .with(path, value)
            .unwrap_or_else(|error| panic!("its own number is refused: {error}"));
        assert_eq!(numbers(&same), numbers(&model), "{path}");
        // Nothing panics at these; whether they are refused is the model's business.
        for other in [0.0, -1.0, 1e300, f64::NAN, f64::INFINITY] {
            let _ = model.with(path, other);
        }
    }
}
