// The page of a run in Dagster's web server: "[Show Markdown]" next to `spyglass` shows the flame graph.
//
//     node dagster_page.mjs ADDRESS DIRECTORY [PICTURE]
//
// DIRECTORY is where `npm install playwright-core` was run; PICTURE is a file for a screenshot. Prints the size of the
// flame graph, the width at which it is shown, and the width available.
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [address, directory, picture] = process.argv.slice(2);
const { chromium } = createRequire(resolve(directory) + '/')('playwright-core');
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'];
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS });
try {
    const page = await browser.newPage({ viewport: { width: 1500, height: 950 } });
    page.setDefaultTimeout(60000);
    // At the first visit it shows a dialog to sign up.
    await page.addLocatorHandler(page.getByRole('button', { name: 'Skip' }), skip => skip.click());
    await page.goto(address);
    await page.getByText('[Show Markdown]').first().click();
    const shown = page.locator('img[src^="data:image/svg+xml"]').first();
    await shown.waitFor({ state: 'visible' });
    const size = await shown.evaluate(async image => {
        await image.decode();
        const room = image.parentElement.parentElement.getBoundingClientRect().width;
        return [image.naturalWidth, image.naturalHeight, image.getBoundingClientRect().width, room];
    });
    if (picture)
        await page.screenshot({ path: picture });
    console.log(JSON.stringify(size));
} finally {
    await browser.close();
}
