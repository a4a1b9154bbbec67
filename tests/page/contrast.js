// Contrast of each piece of text with what lies behind it, as WCAG 2 computes it; gives what falls short.
//
// Colours may be given in any form, so a canvas reads them; layers that let something through are laid over each other.
// Text of 24 px (18.66 bold) needs 3, all other 4.5. What cannot be used (disabled) or seen is left out, as WCAG does.
() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = brush.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) =>
    [0, 1, 2].map((channel) => top[channel] * top[3] + below[channel] * (1 - top[3])).concat(1);
  const linear = (channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) =>
    0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      layers.push(read(getComputedStyle(each).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const found = new Map();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let letters = 0;
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim();
    const element = walk.currentNode.parentElement;
    if (!text || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest(":disabled, .visually-hidden, noscript, option")) continue;
    letters += text.length;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const ground = behind(element);
    const drawn = element.closest("svg") ? style.fill : style.color;
    const [more, less] = [light(ground), light(over(read(drawn), ground))].sort((one, other) => other - one);
    const ratio = (more + 0.05) / (less + 0.05);
    const needed = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < needed) {
      const name = `${element.tagName}.${element.getAttribute("class")}`;
      found.set(name, `${ratio.toFixed(2)} of ${needed}: ${text.slice(0, 40)}`);
    }
  }
  return [letters, [...found]];
};
