// A color for each name: distinct hues of equal lightness in OKLCH.

const HUES = [256, 55, 155, 20, 305, 95, 205, 345, 130, 280, 75, 180];
const colors = { css: [], rgb: [], ink: [], dark: false };

/** OKLCH to sRGB, 0 to 255. Matrices: Björn Ottosson, "A perceptual color space for image processing", 2020. */
function oklch(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const [a, b] = [chroma * Math.cos(angle), chroma * Math.sin(angle)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((value) => {
    const part = Math.min(1, Math.max(0, value));
    return Math.round(255 * (part <= 0.0031308 ? 12.92 * part : 1.055 * part ** (1 / 2.4) - 0.055));
  });
}

/** Compute `colors` for a number of names. */
function chooseColors(count, dark) {
  colors.dark = dark;
  colors.rgb = Array.from({ length: Math.max(count, 1) }, (_, index) => {
    const turn = Math.floor(index / HUES.length);
    const hue = HUES[index % HUES.length] + turn * 13;
    const lightness = (dark ? 0.7 : 0.68) + [0, 0.07, -0.05][index % 3] - [0, 0.09, -0.06][turn % 3];
    return oklch(lightness, turn % 2 ? 0.09 : 0.135, hue);
  });
  colors.css = colors.rgb.map(([r, g, b]) => `rgb(${r} ${g} ${b})`);
  colors.ink = colors.rgb.map(([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10141a" : "#ffffff"));
  colors.packed = colors.rgb.map(([r, g, b]) => (r | (g << 8) | (b << 16)) >>> 0);
  const ground = dark ? [21, 26, 33] : [255, 255, 255];
  colors.faded = colors.rgb.map((rgb) => {
    const [r, g, b] = rgb.map((value, at) => Math.round(ground[at] * 0.84 + value * 0.06 + 128 * 0.1));
    return (r | (g << 8) | (b << 16)) >>> 0;
  });
  colors.fadedCss = colors.faded.map((one) => `rgb(${one & 255} ${(one >> 8) & 255} ${(one >> 16) & 255})`);
}
