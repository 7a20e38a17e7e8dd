// Opens a flame graph in Chromium, by itself and within a page, moves and clicks over it, and fails if it shows a dialog, fetches
// anything, or has an element that the picture does not need. Any text in the picture may be hostile.
//
//     node tests/trust/opens.mjs SVG DIRECTORY      DIRECTORY is where `npm install playwright-core` was run
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [svg, directory] = process.argv.slice(2);
const { chromium } = createRequire(resolve(directory) + '/')('playwright-core');
const address = pathToFileURL(resolve(svg)).href;
const WAIT = 300000; // milliseconds; whatever takes longer counts as a hang, however busy the machine is
const faults = [];

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', timeout: WAIT, args: ['--no-sandbox', '--disable-gpu',
    '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'] });
const page = await browser.newPage();
page.setDefaultTimeout(WAIT);
page.on('dialog', dialog => { faults.push('dialog: ' + dialog.message()); dialog.dismiss(); });
page.on('pageerror', error => faults.push('error: ' + error.message));
page.on('request', request => { if (request.url() !== address) faults.push('request: ' + request.url()); });
await page.goto(address);
for (const frame of (await page.$$('.f rect')).slice(0, 40))
    await frame.hover({ force: true });
for (const frame of (await page.$$('.f rect')).slice(0, 5))
    await frame.click({ force: true });
const odd = await page.evaluate(() => [...document.querySelectorAll('img, iframe, object, embed, a')].map(e => e.tagName)
    .concat([...document.querySelectorAll('*')].flatMap(e => [...e.attributes].filter(a => /^on/i.test(a.name)).map(a => a.name)))
    .concat(document.querySelectorAll('script').length > 1 ? ['a second script'] : []));
if (odd.length)
    faults.push('elements or attributes: ' + odd.join(', '));
await browser.close();
if (faults.length) {
    console.log(faults.join('\n'));
    process.exit(1);
}
