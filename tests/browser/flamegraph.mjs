// Tests a flame graph in a real browser: search, zoom, keyboard, and that it runs and fetches nothing.
//
//     node tests/browser/flamegraph.mjs SVG [DIRECTORY]
//
// DIRECTORY is where `npm install playwright-core` was run (default: build/browser). The browser is
// Debian's chromium. Any flame graph works; tests/golden/roots.svg has hostile names.
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [svgPath, directory = 'build/browser'] = process.argv.slice(2);
if (!svgPath) {
    console.error('usage: flamegraph.mjs SVG [DIRECTORY]');
    process.exit(2);
}
const { chromium } = createRequire(resolve(directory) + '/')('playwright-core');
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

async function open(browser, options) {
    const page = await browser.newPage({ viewport: { width: 1400, height: 800 }, ...options });
    page.setDefaultTimeout(WAIT);
    page.on('request', request => { if (request.url() !== address) requests.push(request.url()); });
    page.on('console', message => complaints.push(message.text()));
    page.on('pageerror', error => complaints.push(error.message));
    page.on('dialog', dialog => { complaints.push('dialog: ' + dialog.message()); dialog.dismiss(); });
    await page.goto(address);
    return page;
}

// What is shown: name, samples and share from the title, position and label on the screen. Returned
// as one string: thousands of objects take the driver minutes.
async function shown(page) {
    return JSON.parse(await page.evaluate(() => JSON.stringify([...document.querySelectorAll('.f')]
        .filter(g => g.style.display !== 'none').map(g => {
            const box = g.querySelector('rect').getBoundingClientRect(), text = g.querySelector('text');
            const told = g.querySelector('title').textContent.match(/^(.*) \(([\d,]+) samples, ([\d.]+)%\)$/s);
            return {
                name: told[1], samples: Number(told[2].replaceAll(',', '')), share: Number(told[3]),
                x: box.x, y: box.y, w: box.width, label: text ? text.textContent : '',
                labelWidth: text ? text.getBoundingClientRect().width : 0,
                hit: g.classList.contains('hit'), up: g.classList.contains('up'), index: Number(g.dataset.i)
            };
        }))));
}

const click = (page, frame) => page.mouse.click(frame.x + frame.w / 2, frame.y + 8);
const fits = frames => frames.every(f => f.labelWidth <= f.w);
const matched = page => page.textContent('.matched');
const resetHidden = page => page.$eval('.reset', button => button.hidden);

async function testPicture(page) {
    const frames = await shown(page);
    check(frames.length > 1 && frames[0].name === 'all' && frames[0].share === 100, 'the root is "all"');
    check(Math.abs(frames[0].w - 1380) < 2, 'the picture has the width of the window', frames[0].w);
    check(fits(frames), 'labels stay within their frames');
    check(frames.every(f => Math.abs(f.w - 1380 * f.samples / frames[0].samples) < 1), 'widths are shares');
    check(await resetHidden(page), 'no reset button at first');
    const last = pick(frames);
    await page.mouse.move(last.x + last.w / 2, last.y + 8);
    const told = await page.textContent('.details');
    check(told.startsWith(last.name), 'the details line names the frame under the mouse', told);
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
            sum += f.samples;
            until = f.y;
            end = f.x + f.w;
        }
    }
    return (100 * sum / frames[0].samples).toFixed(2);
}

async function testSearch(page) {
    const all = await shown(page), name = pick(all).name;
    await page.keyboard.press('Control+f');
    check(await page.$eval('.search', field => field === document.activeElement), 'Ctrl-F goes to the search field');
    await page.keyboard.insertText(name);
    let hits = (await shown(page)).filter(f => f.hit);
    check(hits.length > 0 && hits.every(f => f.name.includes(name)), 'plain text finds its frames', name);
    const want = `Matched: ${shareOf(all, n => n.includes(name))}%`;
    check(await matched(page) === want, 'the share is right', await matched(page), want);
    const fills = await page.$$eval('.f.hit rect', rects => rects.map(rect => getComputedStyle(rect).fill));
    check(new Set(fills).size === 1, 'matches have one colour');
    await page.fill('.search', '^<?MODULE|thread \\(');
    const pattern = /^<?module|thread \(/i;
    hits = (await shown(page)).filter(f => f.hit);
    const due = all.filter(f => pattern.test(f.name)).length;
    check(hits.length === due, 'a pattern finds its frames in any case', hits.length, due);
    await page.fill('.search', '(((');
    hits = (await shown(page)).filter(f => f.hit);
    check(hits.length === 0 && await matched(page) === 'Matched: 0.00%', 'what is no pattern is plain text');
    await page.keyboard.press('Escape');
    check(await matched(page) === '' && (await page.$$('.hit')).length === 0, 'Esc clears the search');
    check(await page.$eval('.search', field => field.value) === '', 'and the field');
}

async function testKeyboard(page) {
    const focused = () => page.evaluate(() => Number(document.activeElement.dataset.i));
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

async function testWithoutScript(browser) {
    const page = await open(browser, { javaScriptEnabled: false });
    const labels = await page.locator('.f text').count(), buttons = await page.locator('.tools').count();
    check(labels > 0 && buttons === 0, 'without script: a picture with labels, and no dead buttons');
    await page.close();
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS, timeout: WAIT });
try {
    const page = await open(browser, {});
    for (const test of [testPicture, testResize, testZoom, testSearch, testKeyboard, testHarmless])
        await test(page);
    await testWithoutScript(browser);
} catch (error) {
    check(false, error.stack);
} finally {
    await browser.close();
}
console.log(`browser: ${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
