//! Properties of every page: it stands alone, is small, and has its charts in every width.

/// The most bytes of a page.
const PAGE_BYTES_MAX: usize = 400_000;

/// Asserts that the page loads nothing, runs no script, stays small, and has these charts, each drawn for every width.
pub(crate) fn stands_alone(page: &str, charts: &[&str]) {
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    // A link to another place of the page loads nothing.
    let elsewhere = page.replace("href=\"#", "");
    for loads in ["<script", " src=", "href=", "@import", "url(http", "<link", "<img", "<iframe", "javascript:"] {
        assert!(!elsewhere.contains(loads), "the page has `{loads}`");
    }
    for id in charts {
        let (_, rest) = page.split_once(&format!("<figure class=\"drawing\" id=\"{id}\">")).expect(id);
        let (drawing, _) = rest.split_once("</figure>").expect("an end");
        for class in ["narrow", "middle", "full"] {
            let images = drawing.split("<svg ").filter(|image| {
                let classes = image.strip_prefix("class=\"").and_then(|c| c.split('"').next()).unwrap_or_default();
                classes.split(' ').any(|c| c == class)
            });
            assert_eq!(images.count(), 1, "{id}: drawings that are {class}");
        }
        inside(id, drawing);
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{id} has a place that is no number");
    }
}

/// Every text that begins at a point begins within its image.
fn inside(id: &str, drawing: &str) {
    for image in drawing.split("viewBox=\"0 0 ").skip(1) {
        let width: f64 = image.split(' ').next().and_then(|w| w.parse().ok()).expect("a width");
        for text in image.split("<text x=\"").skip(1) {
            let x: f64 = text.split('"').next().and_then(|x| x.parse().ok()).expect("a place");
            assert!((0.0..=width).contains(&x), "{id}: a text at {x} of {width}");
        }
    }
}
