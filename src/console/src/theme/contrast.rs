//! Test of the built-in themes against palettes of common terminals: contrast as WCAG 2.2 defines it.

use ratatui::style::{Color, Modifier, Style};

use super::{Severity, Theme, loader::BUILT_IN};

/// Least contrast of text (WCAG 1.4.3, level AA).
const TEXT: f64 = 4.5;
/// Least contrast of shapes (WCAG 1.4.11).
const SHAPE: f64 = 3.0;

/// Default colours of a terminal.
struct Palette {
    name: &'static str,
    background: u32,
    foreground: u32,
    /// The 16 colours, by their numbers.
    colours: [u32; 16],
}

const XTERM: [u32; 16] = [
    0x00_0000, 0xcd_0000, 0x00_cd00, 0xcd_cd00, 0x00_00ee, 0xcd_00cd, 0x00_cdcd, 0xe5_e5e5, 0x7f_7f7f, 0xff_0000,
    0x00_ff00, 0xff_ff00, 0x5c_5cff, 0xff_00ff, 0x00_ffff, 0xff_ffff,
];
const VGA: [u32; 16] = [
    0x00_0000, 0xaa_0000, 0x00_aa00, 0xaa_5500, 0x00_00aa, 0xaa_00aa, 0x00_aaaa, 0xaa_aaaa, 0x55_5555, 0xff_5555,
    0x55_ff55, 0xff_ff55, 0x55_55ff, 0xff_55ff, 0x55_ffff, 0xff_ffff,
];
const CAMPBELL: [u32; 16] = [
    0x0c_0c0c, 0xc5_0f1f, 0x13_a10e, 0xc1_9c00, 0x00_37da, 0x88_1798, 0x3a_96dd, 0xcc_cccc, 0x76_7676, 0xe7_4856,
    0x16_c60c, 0xf9_f1a5, 0x3b_78ff, 0xb4_009e, 0x61_d6d6, 0xf2_f2f2,
];
const GNOME: [u32; 16] = [
    0x17_1421, 0xc0_1c28, 0x26_a269, 0xa2_734c, 0x12_488b, 0xa3_47ba, 0x2a_a1b3, 0xd0_cfcc, 0x5e_5c64, 0xf6_6151,
    0x33_d17a, 0xe9_ad0c, 0x2a_7bde, 0xc0_61cb, 0x33_c7de, 0xff_ffff,
];
const TANGO: [u32; 16] = [
    0x2e_3436, 0xcc_0000, 0x4e_9a06, 0xc4_a000, 0x34_65a4, 0x75_507b, 0x06_989a, 0xd3_d7cf, 0x55_5753, 0xef_2929,
    0x8a_e234, 0xfc_e94f, 0x72_9fcf, 0xad_7fa8, 0x34_e2e2, 0xee_eeec,
];
const PUTTY: [u32; 16] = [
    0x00_0000, 0xbb_0000, 0x00_bb00, 0xbb_bb00, 0x00_00bb, 0xbb_00bb, 0x00_bbbb, 0xbb_bbbb, 0x55_5555, 0xff_5555,
    0x55_ff55, 0xff_ff55, 0x55_55ff, 0xff_55ff, 0x55_ffff, 0xff_ffff,
];
const VS_CODE: [u32; 16] = [
    0x00_0000, 0xcd_3131, 0x0d_bc79, 0xe5_e510, 0x24_72c8, 0xbc_3fbc, 0x11_a8cd, 0xe5_e5e5, 0x66_6666, 0xf1_4c4c,
    0x23_d18b, 0xf5_f543, 0x3b_8eea, 0xd6_70d6, 0x29_b8db, 0xe5_e5e5,
];
const VS_CODE_LIGHT: [u32; 16] = [
    0x00_0000, 0xcd_3131, 0x10_7c10, 0x94_9800, 0x04_51a5, 0xbc_05bc, 0x05_98bc, 0x55_5555, 0x66_6666, 0xcd_3131,
    0x14_ce14, 0xb5_ba00, 0x04_51a5, 0xbc_05bc, 0x05_98bc, 0xa5_a5a5,
];
const TERMINAL_APP: [u32; 16] = [
    0x00_0000, 0xc2_3621, 0x25_bc24, 0xad_ad27, 0x49_2ee1, 0xd3_38d3, 0x33_bbc8, 0xcb_cccd, 0x81_8383, 0xfc_391f,
    0x31_e722, 0xea_ec23, 0x58_33ff, 0xf9_35f8, 0x14_f0f0, 0xe9_ebeb,
];
const KONSOLE: [u32; 16] = [
    0x00_0000, 0xb2_1818, 0x18_b218, 0xb2_6818, 0x18_18b2, 0xb2_18b2, 0x18_b2b2, 0xb2_b2b2, 0x68_6868, 0xff_5454,
    0x54_ff54, 0xff_ff54, 0x54_54ff, 0xff_54ff, 0x54_ffff, 0xff_ffff,
];

const fn palette(name: &'static str, background: u32, foreground: u32, colours: [u32; 16]) -> Palette {
    Palette { name, background, foreground, colours }
}

/// Dark palettes, each with its source. Solarized Dark cannot pass: six of its light colours are greys.
const DARK: [Palette; 8] = [
    // xterm: XTerm-col.ad, reverse video
    palette("xterm -rv", 0x00_0000, 0xe5_e5e5, XTERM),
    // Linux: drivers/tty/vt/vt.c, default_red, default_grn, default_blu
    palette("Linux console", 0x00_0000, 0xaa_aaaa, VGA),
    // Windows Terminal: defaults.json, scheme Campbell
    palette("Windows Terminal Campbell", 0x0c_0c0c, 0xcc_cccc, CAMPBELL),
    // gnome-terminal: profile-editor.cc, scheme "GNOME dark", palette "GNOME"
    palette("GNOME dark", 0x17_1421, 0xd0_cfcc, GNOME),
    // gnome-terminal: profile-editor.cc, scheme "Gray on black", palette "Tango"
    palette("Tango on black", 0x00_0000, 0xaa_aaaa, TANGO),
    // PuTTY: settings.c, default colours
    palette("PuTTY", 0x00_0000, 0xbb_bbbb, PUTTY),
    // VS Code: terminalColorRegistry.ts, dark
    palette("VS Code dark", 0x1e_1e1e, 0xcc_cccc, VS_CODE),
    // macOS: Terminal.app, profile Pro
    palette("Terminal.app Pro", 0x00_0000, 0xf2_f2f2, TERMINAL_APP),
];

/// Light palettes, each with its source. Solarized Light cannot pass: its own foreground has a contrast of 4.1.
const LIGHT: [Palette; 7] = [
    // xterm: XTerm-col.ad
    palette("xterm", 0xff_ffff, 0x00_0000, XTERM),
    // gnome-terminal: profile-editor.cc, scheme "GNOME light", palette "GNOME"
    palette("GNOME light", 0xff_ffff, 0x1e_1e1e, GNOME),
    // gnome-terminal: profile-editor.cc, scheme "Tango light", palette "Tango"
    palette("Tango light", 0xee_eeec, 0x2e_3436, TANGO),
    // Windows Terminal: defaults.json, scheme Tango Light
    palette("Windows Terminal Tango Light", 0xff_ffff, 0x55_5753, TANGO),
    // Konsole: BlackOnWhite.colorscheme
    palette("Konsole Black on White", 0xff_ffff, 0x00_0000, KONSOLE),
    // VS Code: terminalColorRegistry.ts, light
    palette("VS Code light", 0xff_ffff, 0x33_3333, VS_CODE_LIGHT),
    // PuTTY: settings.c, default colours, with foreground and background exchanged
    palette("PuTTY, black on white", 0xff_ffff, 0x00_0000, PUTTY),
];

/// Returns the relative luminance of a colour (WCAG 2.2).
fn luminance(colour: u32) -> f64 {
    let [_, red, green, blue] = colour.to_be_bytes().map(|part| {
        let part = f64::from(part) / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

/// Returns the contrast of two colours, from 1 to 21.
fn contrast(one: u32, two: u32) -> f64 {
    let (one, two) = (luminance(one), luminance(two));
    (one.max(two) + 0.05) / (one.min(two) + 0.05)
}

impl Palette {
    /// Returns the contrast of text in this style. Reverse video exchanges the two colours, so it changes nothing.
    fn contrast_of(&self, style: Style) -> f64 {
        let at = |n: usize| self.colours[n];
        let colour = match style.fg {
            None | Some(Color::Reset) => self.foreground,
            Some(Color::Black) => at(0),
            Some(Color::Red) => at(1),
            Some(Color::Green) => at(2),
            Some(Color::Yellow) => at(3),
            Some(Color::Blue) => at(4),
            Some(Color::Magenta) => at(5),
            Some(Color::Cyan) => at(6),
            Some(Color::Gray) => at(7),
            Some(Color::DarkGray) => at(8),
            Some(Color::LightRed) => at(9),
            Some(Color::LightGreen) => at(10),
            Some(Color::LightYellow) => at(11),
            Some(Color::LightBlue) => at(12),
            Some(Color::LightMagenta) => at(13),
            Some(Color::LightCyan) => at(14),
            Some(Color::White) => at(15),
            Some(other @ (Color::Rgb(..) | Color::Indexed(_))) => panic!("{other} depends on no palette"),
        };
        contrast(colour, self.background)
    }
}

fn palettes_for(theme: &str) -> Vec<&'static Palette> {
    match theme {
        "plain" => DARK.iter().chain(&LIGHT).collect(),
        // the built-in themes for a light background
        "light" | "contrast-light" | "blue-orange-light" => LIGHT.iter().collect(),
        _ => DARK.iter().collect(),
    }
}

/// Returns the styles of text, by role. Borders carry no information; `draining` is the colour of shapes.
fn text_roles(theme: &Theme) -> Vec<(String, Style)> {
    let mut roles: Vec<(String, Style)> = [
        ("badge", theme.badge),
        ("title", theme.title),
        ("tab", theme.tab),
        ("good", theme.good),
        ("trouble", theme.trouble),
        ("danger", theme.danger),
        ("muted", theme.muted),
        ("rebooting", theme.rebooting),
        ("selection", theme.selection),
        ("key", theme.key),
        ("cursor", theme.cursor),
        ("mark", theme.mark),
    ]
    .map(|(name, style)| (name.to_owned(), style))
    .into();
    roles.extend(Severity::ALL.map(|severity| (format!("{severity:?}"), theme.severity(severity))));
    // the row under the cursor keeps the colours of its cells
    roles.extend(
        Severity::ALL.map(|s| (format!("{s:?} in the cursor's row"), theme.severity(s).patch(theme.selection))),
    );
    roles
}

#[test]
fn every_text_role_of_every_built_in_theme_is_readable_on_six_palettes_or_more() {
    let mut wrong = Vec::new();
    for (name, _) in BUILT_IN {
        let theme = Theme::named(name, true).unwrap();
        let palettes = palettes_for(name);
        assert!(palettes.len() >= 6, "{name}");
        for palette in palettes {
            for (role, style) in text_roles(&theme) {
                let contrast = palette.contrast_of(style);
                assert!(!style.add_modifier.contains(Modifier::DIM), "{name}: {role} is dim");
                if contrast < TEXT {
                    wrong.push(format!("{name}: {role} on {}: {contrast:.2}", palette.name));
                }
            }
            for severity in Severity::ALL {
                let contrast = palette.contrast_of(theme.shape(severity));
                if contrast < SHAPE {
                    wrong.push(format!("{name}: shape of {severity:?} on {}: {contrast:.2}", palette.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_default_theme_has_no_dim_and_no_blue_text() {
    let theme = Theme::named(super::DEFAULT, true).unwrap();
    for (role, style) in text_roles(&theme) {
        assert!(!style.add_modifier.contains(Modifier::DIM), "{role}");
        assert!(!matches!(style.fg, Some(Color::Blue | Color::LightBlue)), "{role}");
    }
    assert_eq!(theme.shape(Severity::Draining).fg, Some(Color::LightBlue));
}

#[test]
fn the_contrast_is_computed_as_wcag_defines_it() {
    assert!((contrast(0xff_ffff, 0x00_0000) - 21.0).abs() < 0.01);
    // the published example of the boundary: #767676 on white
    assert!((contrast(0x76_7676, 0xff_ffff) - 4.54).abs() < 0.01);
}
