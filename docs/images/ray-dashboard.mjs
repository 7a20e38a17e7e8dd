// Takes docs/images/ray-dashboard.png: Ray's own pages in a real browser. The dialog of "CPU Flame Graph" for a task, then
// the flame graph that its button opens, one above the other.
//
//     node docs/images/ray-dashboard.mjs DASHBOARD OUT.png DIRECTORY
//
// DASHBOARD is the address of a dashboard with a running long_running_task, DIRECTORY where playwright-core is installed.
// Called by tests/integration/test_ray_picture.py.
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [dashboard, out, directory] = process.argv.slice(2);
if (!directory) {
    console.error('usage: ray-dashboard.mjs DASHBOARD OUT.png DIRECTORY');
    process.exit(2);
}
const { chromium } = createRequire(resolve(directory) + '/')('playwright-core');
const FLAGS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'];
const WIDTH = 1200;

// The list of a node's processes has the buttons; a task's own page has them, too.
async function openDialog(page) {
    await page.goto(dashboard + '/#/cluster');
    const row = page.locator('tr', { hasText: 'ray::long_running_task' }).first();
    await row.waitFor({ timeout: 120000 }); // the node is unfolded; what runs on it comes some seconds later
    await row.scrollIntoViewIfNeeded();
    await row.getByText(/^CPU\sFlame\sGraph/).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Generate report').waitFor();
    return dialog;
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS });
try {
    const context = await browser.newContext({ viewport: { width: WIDTH, height: 560 }, timezoneId: 'UTC' });
    const page = await context.newPage();
    const dialog = await openDialog(page);
    await page.waitForTimeout(500); // the dialog fades in
    const above = await page.screenshot();
    const opened = context.waitForEvent('page', { timeout: 60000 });
    await dialog.getByText('Generate report').click();
    const graph = await opened;
    await graph.waitForLoadState('load', { timeout: 60000 });
    const text = await graph.evaluate(() => document.documentElement.outerHTML);
    if (!text.includes('long_running_task ('))
        throw new Error('no flame graph of the task at ' + graph.url() + ': ' + text.slice(0, 500));
    await graph.setViewportSize({ width: WIDTH, height: 330 });
    const below = await graph.screenshot();
    const sheet = await context.newPage();
    await sheet.setViewportSize({ width: WIDTH, height: 894 });
    const image = data => '<img style="display:block" src="data:image/png;base64,' + data.toString('base64') + '">';
    await sheet.setContent('<body style="margin:0;background:#888">' + image(above) + '<div style="height:4px"></div>' +
        image(below));
    await sheet.screenshot({ path: out });
    console.log('wrote ' + out);
} finally {
    await browser.close();
}
