// Tests a flame graph in a real browser: search, zoom, keyboard, small screens, accessibility, and that it runs and
// fetches nothing.
//
//     node tests/browser/flamegraph.mjs SVG [DIRECTORY]
//
// DIRECTORY is where `npm install playwright-core axe-core` was run (default: build/browser). The browser is
// Debian's chromium. Any flame graph works; tests/golden/roots.svg has hostile names, time.svg has seconds.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [svgPath, directory = 'build/browser'] = process.argv.slice(2);
if (!svgPath) {
    console.error('usage: flamegraph.mjs SVG [DIRECTORY]');
    process.exit(2);
}
const require = createRequire(resolve(directory) + '/');
const { chromium } = require('playwright-core'), axe = require('axe-core').source;
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'];
const address = pathToFileURL(resolve(svgPath)).href;
const WAIT = 300000; // milliseconds; whatever takes longer counts as a hang, however busy the machine is
let passed = 0, failed = 0;
const requests = [], complaints = [];

function check(ok, what, ...more) {
    if (ok) {
        passed++;
    } else {
        failed++;
        console.error('failed:', what, ...more);
    }
}

async function open(browser, options, url = address) {
    const page = await browser.newPage({ viewport: { width: 1400, height: 800 }, ...options });
    page.setDefaultTimeout(WAIT);
    page.on('request', request => { if (request.url() !== address) requests.push(request.url()); });
    page.on('console', message => complaints.push(message.text()));
    page.on('pageerror', error => complaints.push(error.message));
    page.on('dialog', dialog => { complaints.push('dialog: ' + dialog.message()); dialog.dismiss(); });
    await page.goto(url);
    return page;
}

// What is shown: name, value (samples or seconds) and share from the title, position and label on the screen. Returned
// as one string: thousands of objects take the driver minutes.
async function shown(page) {
    return JSON.parse(await page.evaluate(() => JSON.stringify([...document.querySelectorAll('.f')]
        .filter(g => g.style.display !== 'none').map(g => {
            const box = g.querySelector('rect').getBoundingClientRect(), text = g.querySelector('text');
            const told = g.querySelector('title').textContent
                .match(/^(.*) \(([\d,.]+) (samples?|s), ([\d.]+)%\), self (?:([\d,.]+) (?:samples?|s), )?([\d.]+)%$/s);
            return {
                name: told[1], value: Number(told[2].replaceAll(',', '')), unit: told[3], share: Number(told[4]),
                self: Number((told[5] || '0').replaceAll(',', '')), selfShare: Number(told[6]),
                x: box.x, y: box.y, w: box.width, h: box.height, label: text ? text.textContent : '',
                labelWidth: text ? text.getBoundingClientRect().width : 0,
                hit: g.classList.contains('hit'), up: g.classList.contains('up'), index: Number(g.dataset.i)
            };
        }))));
}

// "59 samples, 66.29%", from the frame's title.
const valueOf = (page, frame) => page.$eval(`[data-i="${frame.index}"] title`,
    title => title.textContent.match(/ \(([^()]*%)\), self/)[1]);
const click = (page, frame) => page.mouse.click(frame.x + frame.w / 2, frame.y + 8);
const fits = frames => frames.every(f => f.labelWidth <= f.w);
const matched = page => page.textContent('.matched');
const resetHidden = page => page.$eval('.reset', button => button.hidden);

async function testPicture(page) {
    const frames = await shown(page);
    check(frames.length > 1 && frames[0].name === 'all' && frames[0].share === 100, 'the root is "all"');
    check(Math.abs(frames[0].w - 1380) < 2, 'the picture has the width of the window', frames[0].w);
    check(fits(frames), 'labels stay within their frames');
    check(frames.every(f => Math.abs(f.w - 1380 * f.share / 100) < 1), 'widths are shares');
    check(frames.every(f => Math.abs(f.share - 100 * f.value / frames[0].value) < 0.1), 'shares are values');
    check(frames.every(f => Math.abs(f.selfShare - 100 * f.self / frames[0].value) < 0.1), 'self shares are self values');
    check(frames.every(f => (f.unit === 'sample') === (f.unit !== 's' && f.value === 1)), '1 sample, 2 samples');
    for (const [i, f] of frames.entries()) {
        const callees = frames.filter((g, k) => k > i && frames.findLast((h, m) => m < k && h.y < g.y) === f);
        const sum = callees.reduce((n, g) => n + g.value, f.self);
        check(Math.abs(sum - f.value) < 0.01, 'self and callees make the total', f.name, sum, f.value);
    }
    check(await resetHidden(page), 'no reset button at first');
    const last = pick(frames);
    await page.mouse.move(last.x + last.w / 2, last.y + 8);
    const told = await page.textContent('.details');
    check(told.startsWith(last.name), 'the details line names the frame under the mouse', told);
    check(told.includes(`total ${await valueOf(page, last)}self ${last.self ? '' : '0%'}`), 'and its values', told);
    check(told.endsWith(`${last.selfShare}%`) || told.endsWith(`${last.selfShare.toFixed(2)}%`), 'and its own share', told);
}

async function testResize(page) {
    await page.setViewportSize({ width: 800, height: 600 });
    await page.waitForFunction(() => document.querySelector('.frames').getAttribute('width') === '780');
    const frames = await shown(page);
    check(fits(frames), 'labels are cut anew in a narrow window');
    await page.setViewportSize({ width: 1400, height: 800 });
    await page.waitForFunction(() => document.querySelector('.frames').getAttribute('width') === '1380');
}

// The narrowest frame that has a callee and is wide enough to click.
function pick(frames) {
    const isCaller = (f, i) => i > 0 && frames[i + 1] && frames[i + 1].y > f.y;
    const callers = frames.filter((f, i) => isCaller(f, i) && f.share < 100 && f.y < 780);
    return callers.filter(f => f.w >= 4).sort((a, b) => a.w - b.w)[0] || callers[0];
}

async function testZoom(page) {
    const before = await shown(page), target = pick(before);
    await click(page, target);
    let frames = await shown(page);
    const now = frames.find(f => f.index === target.index);
    check(Math.abs(now.w - 1380) < 2, 'a click makes a frame as wide as the window', now.w);
    const callers = frames.filter(f => f.up);
    check(callers.every(f => f.y < now.y && Math.abs(f.w - 1380) < 2), 'its callers are above it, as wide');
    check(frames.length < before.length, 'the others are hidden');
    check(fits(frames), 'labels fit after zooming');
    check(now.label !== '', 'a frame without a label gets one when there is room');
    check(!await resetHidden(page), 'the reset button appears');
    await page.click('.reset');
    check((await shown(page)).length === before.length && await resetHidden(page), 'reset shows everything');
    await click(page, target);
    await page.keyboard.press('Escape');
    frames = await shown(page);
    check(frames.every((f, i) => Math.abs(f.w - before[i].w) < 0.1), 'Esc does too');
    await click(page, target);
    await click(page, (await shown(page))[0]);
    check((await shown(page)).length === before.length, 'and a click on the root');
}

// The share that a search must report: matches, not counting matches inside of matches.
function shareOf(frames, test) {
    let sum = 0, until = -1, end = 0;
    for (const f of frames) {
        if (until >= 0 && f.y > until && f.x < end - 0.01) continue;
        until = -1;
        if (test(f.name)) {
            sum += f.w;
            until = f.y;
            end = f.x + f.w;
        }
    }
    const share = 100 * sum / frames[0].w;
    return share.toFixed(share < 1 ? 2 : 1);
}

async function testSearch(page) {
    const all = await shown(page), name = pick(all).name;
    await page.keyboard.press('Control+f');
    check(await page.$eval('.search', field => field === document.activeElement), 'Ctrl-F goes to the search field');
    await page.keyboard.insertText(name);
    let hits = (await shown(page)).filter(f => f.hit);
    check(hits.length > 0 && hits.every(f => f.name.includes(name)), 'plain text finds its frames', name);
    const count = hits.length === 1 ? '1 match' : `${hits.length} matches`;
    const want = `${count}, ${shareOf(all, n => n.includes(name))}%`;
    check(await matched(page) === want, 'the number of matches and their share are right', await matched(page), want);
    const fills = await page.$$eval('.f.hit rect', rects => rects.map(rect => getComputedStyle(rect).fill));
    check(new Set(fills).size === 1, 'matches have one colour');
    await page.fill('.search', '^<?MODULE|thread \\(');
    const pattern = /^<?module|thread \(/i;
    hits = (await shown(page)).filter(f => f.hit);
    const due = all.filter(f => pattern.test(f.name)).length;
    check(hits.length === due, 'a pattern finds its frames in any case', hits.length, due);
    await page.fill('.search', '(((');
    hits = (await shown(page)).filter(f => f.hit);
    check(hits.length === 0 && await matched(page) === 'No matches', 'what is no pattern is plain text');
    await page.keyboard.press('Escape');
    check(await matched(page) === '' && (await page.$$('.hit')).length === 0, 'Esc clears the search');
    check(await page.$eval('.search', field => field.value) === '', 'and the field');
}

// A frame is in the window, and not behind the header.
const inView = (page, selector) => page.$eval(selector, g => {
    const box = g.querySelector('rect').getBoundingClientRect();
    return box.top >= document.querySelector('.bar').offsetHeight && box.bottom <= window.innerHeight;
});

async function testNextMatch(page) {
    await page.setViewportSize({ width: 1400, height: 150 });
    await page.fill('.search', '[a-z]');
    const hits = (await shown(page)).filter(f => f.hit).map(f => f.index), n = hits.length;
    const text = (await matched(page)).replace(/^\d+ /, '');
    const now = () => page.$$eval('.now', list => list.map(g => Number(g.dataset.i)).join());
    const steps = [...hits.keys(), 0, n - 1, n - 2]; // forward, around the end, back around the start
    for (const [i, at] of steps.entries()) {
        await page.keyboard.press(i > n ? 'Shift+Enter' : 'Enter');
        check(await now() === String(hits[at]), 'Enter goes to the next match, Shift-Enter back', i, await now(), hits[at]);
        check(await matched(page) === `${at + 1} of ${n} ${text}`, 'and counts', await matched(page));
        check(await inView(page, '.now'), 'the match is in view', i);
    }
    const spoken = await page.textContent('[role=status]'), label = await page.$eval('.now', g => g.ariaLabel);
    check(spoken === await matched(page) + ': ' + label, 'a screen reader hears the match', spoken);
    check(await page.$eval('.search', field => field === document.activeElement), 'the field keeps the focus');
    await page.keyboard.press('Escape');
    check(await now() === '', 'Esc ends it');
    await page.setViewportSize({ width: 1400, height: 800 });
}

// The window shows only a few rows, so the keys have to scroll.
async function testKeyboardScrolls(page) {
    await page.setViewportSize({ width: 1400, height: 150 });
    await page.$eval('.f', g => g.focus());
    const depth = new Set((await shown(page)).map(f => f.y)).size;
    for (const key of ['ArrowDown', 'ArrowUp'])
        for (let i = 0; i < depth; i++) {
            await page.keyboard.press(key);
            check(await inView(page, '.f:focus'), 'the focused frame is in view', key, i);
        }
    await page.evaluate(() => window.scrollTo(0, 1e6));
    await page.waitForFunction(() => Math.abs(document.querySelector('.bar').getBoundingClientRect().top) < 1);
    await page.focus('.search');
    await page.keyboard.press('Shift+Tab'); // the header is after the frames
    check(await inView(page, '.f:focus'), 'so is the frame that the tab key reaches');
    await page.setViewportSize({ width: 1400, height: 800 });
}

async function testKeyboard(page) {
    const focused = () => page.evaluate(() => Number(document.activeElement.dataset.i));
    const last = (await shown(page)).filter(f => f.w > 2).pop(); // not a callee of frame 1, so Enter hides it
    const point = () => page.mouse.move(last.x + last.w / 2, last.y + 8);
    await point();
    await page.$eval('.f', g => g.focus());
    await page.keyboard.press('ArrowDown');
    check(await focused() === 1, 'down goes to the first callee');
    await page.keyboard.press('ArrowUp');
    check(await focused() === 0, 'up goes to the caller');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowLeft');
    check(await focused() === 1, 'right and left go along siblings');
    await page.keyboard.press('Enter');
    check(Math.abs((await shown(page)).find(f => f.index === 1).w - 1380) < 2, 'Enter zooms');
    check((await page.textContent('.details')) !== '', 'the details line follows the keyboard');
    await page.keyboard.press('Escape');
    const focusedName = (await shown(page)).find(f => f.index === 1).name;
    await point(); // as a browser does by itself when frames move below a resting pointer
    check((await page.textContent('.details')).startsWith(focusedName), 'and stays with the focus when Esc zooms out');
    check((await page.$$('.f[tabindex="0"]')).length === 1, 'one stop for the tab key');
}

async function testHarmless(page) {
    check((await page.$$('script')).length === 1, 'one script, our own');
    const handlers = await page.evaluate(() => [...document.querySelectorAll('*')]
        .filter(e => e.getAttributeNames().some(name => /^on/i.test(name))).length);
    check(handlers === 0, 'no handler attributes');
    const links = await page.evaluate(() => document.querySelectorAll('a, image, use, iframe, link, img').length);
    check(links === 0, 'no links, no images');
    check(requests.length === 0, 'nothing was fetched', requests);
    check(complaints.length === 0, 'nothing was said on the console', complaints);
}

// The lowest contrast of a text to what is behind it, with the text.
const lowestContrast = page => page.evaluate(() => {
    const number = text => text.match(/[\d.]+/g).map(Number);
    const over = (top, alpha, below) => top.slice(0, 3).map((c, i) => c * alpha + below[i] * (1 - alpha));
    const light = colour => colour.map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
    const back = number(getComputedStyle(document.querySelector('.back')).fill), found = [];
    for (const g of document.querySelectorAll('.f')) {
        const text = g.querySelector('text'), rect = getComputedStyle(g.querySelector('rect'));
        if (g.style.display === 'none' || !text || !text.textContent) continue;
        const alpha = Number(getComputedStyle(g).opacity), fill = over(number(rect.fill), rect.fillOpacity * alpha, back);
        const ink = over(number(getComputedStyle(text).fill), alpha, back);
        found.push([contrast(ink, fill), text.textContent]);
    }
    for (const element of document.querySelectorAll('.bar div, .bar button, .bar input')) {
        const style = getComputedStyle(element), behind = number(style.backgroundColor);
        const below = behind.length === 4 && behind[3] === 0 ? back : behind;
        found.push([contrast(number(style.color), below), element.className]);
        if (element.placeholder)
            found.push([contrast(number(getComputedStyle(element, '::placeholder').color), below), 'placeholder']);
    }
    return found.sort((a, b) => a[0] - b[0])[0];
});

async function checkAxe(page, where) {
    await page.evaluate(axe);
    const { violations, passes } = await page.evaluate(() => window.axe.run());
    check(violations.length === 0, 'axe finds nothing', where, JSON.stringify(violations.map(v => [v.id, v.nodes.map(n =>
        [n.html.slice(0, 200), n.failureSummary])]), null, 1));
    check(passes.some(rule => rule.id === 'svg-img-alt'), 'axe sees that the graph has a name', where);
}

async function testAccessible(browser, colorScheme) {
    const page = await open(browser, { colorScheme });
    const target = pick(await shown(page));
    const readable = async state => {
        const [contrast, text] = await lowestContrast(page);
        check(contrast >= 4.5, 'contrast', colorScheme, state, contrast, text);
        await checkAxe(page, colorScheme + ', ' + state);
    };
    await readable('at first');
    await page.fill('.search', target.name);
    await readable('searching');
    await page.keyboard.press('Enter');
    await readable('at a match');
    await click(page, target);
    await readable('searching and zoomed');
    await page.fill('.search', '');
    await readable('zoomed');
    const label = await page.$eval('svg', svg => svg.ariaLabel + ': ' + svg.getAttribute('role'));
    check(/^Flame graph: .+: graphics-document$/s.test(label), 'the graph has a role and a label', label);
    const labels = await page.$$eval('.f', list => list.every(g => g.ariaLabel === g.querySelector('title').textContent));
    check(labels, 'frames have labels');
    await page.close();
}

async function checkNarrow(page, where) {
    const frames = await shown(page);
    check(frames.every(f => f.h >= 24), 'frames are tall enough for a finger', where);
    check(fits(frames), 'labels fit', where);
    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    check(wide[0] <= 360 && wide[1] === 360, 'nothing is wider than the screen', where, wide);
    const boxes = await page.$$eval('.bar > div:not(.spoken), .bar button, .bar input', list => list
        .filter(e => e.offsetHeight > 0).map(e => ({ name: e.className, ...e.getBoundingClientRect().toJSON() })));
    const header = boxes.filter(box => box.name !== 'reset' && box.name !== 'search').sort((a, b) => a.top - b.top);
    check(header.every((box, i) => i === 0 || box.top >= header[i - 1].bottom), 'header lines do not overlap', where);
    check(boxes.every(box => box.left >= 0 && box.right <= 360), 'the header fits', where);
    check(frames[0].y >= header.at(-1).bottom, 'the frames begin below the header', where);
}

async function testPhone(browser) {
    for (const isMobile of [false, true]) { // a narrow window, a phone
        const page = await open(browser, { viewport: { width: 360, height: 640 }, isMobile, hasTouch: isMobile });
        await checkNarrow(page, 'at first');
        const target = pick(await shown(page));
        await page.fill('.search', target.name);
        await page.keyboard.press('Enter');
        await checkNarrow(page, 'searching');
        await click(page, (await shown(page)).find(f => f.index === target.index));
        check(!await resetHidden(page), 'a click zooms');
        await checkNarrow(page, 'zoomed');
        await page.close();
    }
}

// The SVG as part of a page, as in a notebook. Its place is narrower than the picture.
const pageWith = width => `<!DOCTYPE html><html lang="en"><title>A page</title><main style="width: ${width}"><h1>A page</h1>
    <style>main > svg { max-width: 100%; height: auto }</style>
    ${readFileSync(svgPath, 'utf8').replace(/^[^]*?(?=<svg)/, '')}</main></html>`;

async function testInline(browser) {
    const page = await open(browser, {}, 'about:blank');
    await page.setContent(pageWith('800px'));
    const frames = await shown(page), header = await page.$eval('.bar', bar => bar.getBoundingClientRect().toJSON());
    check(Math.abs(frames[0].w - 780) < 2 && fits(frames), 'in a page, it is as wide as its place', frames[0].w);
    check(Math.abs(frames[0].h - 17) < 0.1 && frames[0].y >= header.bottom, 'and not scaled', frames[0].h);
    await checkAxe(page, 'in a page');
    await page.close();
}

async function testWithoutScript(browser) {
    const page = await open(browser, { javaScriptEnabled: false });
    const labels = await page.locator('.f text').count(), buttons = await page.locator('.tools').count();
    check(labels > 0 && buttons === 0, 'without script: a picture with labels, and no dead buttons');
    await page.goto('about:blank');
    await page.setContent(pageWith('800px'));
    const root = await page.locator('.f rect').first().boundingBox();
    const labelled = await page.locator('svg[role=graphics-document][aria-label]').count();
    check(Math.abs(root.width - 1180 * 800 / 1200) < 2, 'in a page, it is scaled to the width', root);
    check(labelled === 1, 'and has a label');
    await page.close();
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS, timeout: WAIT });
try {
    const page = await open(browser, {});
    for (const test of [testPicture, testResize, testZoom, testSearch, testNextMatch, testKeyboard, testKeyboardScrolls,
        testHarmless])
        await test(page);
    await testAccessible(browser, 'light');
    await testAccessible(browser, 'dark');
    await testPhone(browser);
    await testInline(browser);
    await testWithoutScript(browser);
} catch (error) {
    check(false, error.stack);
} finally {
    await browser.close();
}
console.log(`browser: ${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
