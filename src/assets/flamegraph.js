// Search, zoom and keyboard control of the flame graph. Reads the frames from the SVG, where callers precede callees:
// <g class="f" data-self="N samples, P%"><title>name (N samples, P%)</title><rect/><text/></g>, or with seconds: 1.23 s, P%
'use strict';
(function () {
    const SVG = 'http://www.w3.org/2000/svg', HTML = 'http://www.w3.org/1999/xhtml';
    const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\u{1f000}-\u{3ffff}]/u;
    const VALUE = / \(([\d,.]+ (?:samples?|s), [\d.]+%)\)$/;
    const ROW = 18, CHAR = 7.3, MARGIN = 10;
    const NARROW = 640, FINGER = 30; // pixels: narrower is a small screen; height of a row that a finger can hit
    const svg = document.currentScript.closest('svg');
    const canvas = svg.querySelector('.frames'), head = svg.querySelector('.head');
    const fullTitle = svg.querySelector('title').textContent;
    const standalone = svg === document.documentElement;
    const frames = readFrames();
    const rows = 1 + frames.reduce((most, frame) => Math.max(most, frame.depth), 0);
    let zoomed = 0, current = 0, matcher = null, match = -1, row = ROW, pointer = {};

    function create(space, name, parent, attributes) {
        const element = document.createElementNS(space, name);
        for (const key in attributes) element.setAttribute(key, attributes[key]);
        parent.appendChild(element);
        return element;
    }

    // Lists the frames in document order. `parent` and `end` (one past the last callee) are indexes into the list.
    function readFrames() {
        const list = [], open = [];
        for (const g of canvas.querySelectorAll('.f')) {
            const rect = g.querySelector('rect'), info = g.querySelector('title').textContent;
            const depth = Math.round(rect.getAttribute('y') / ROW), value = info.match(VALUE);
            const total = value ? value[1] : '', self = g.getAttribute('data-self') || '0%';
            while (open.length > depth) list[open.pop()].end = list.length;
            list.push({
                g, rect, depth, total, self, info: info + ', self ' + self, text: g.querySelector('text'),
                name: info.replace(VALUE, ''),
                x: parseFloat(rect.getAttribute('x')), w: parseFloat(rect.getAttribute('width')),
                parent: open.length ? open[open.length - 1] : -1, end: 0, hit: false
            });
            g.setAttribute('data-i', list.length - 1);
            open.push(list.length - 1);
        }
        while (open.length) list[open.pop()].end = list.length;
        return list;
    }

    function columns(character) {
        return WIDE.test(character) ? 2 : 1;
    }

    function fit(text, room) {
        if (text.length * 2 <= room) return text;
        let used = 0, cut = '';
        for (const character of text) {
            used += columns(character);
            if (used <= room - 1) cut += character;
            if (used > room) return cut + '\u2026';
        }
        return text;
    }

    function draw(frame, x, w, pixels) {
        const room = Math.floor((w * pixels / 100 - 6) / CHAR);
        frame.rect.setAttribute('x', x + '%');
        frame.rect.setAttribute('width', w + '%');
        if (room >= 3 && !frame.text) frame.text = create(SVG, 'text', frame.g, { dx: 4, y: baseline(frame) });
        if (!frame.text) return;
        frame.text.setAttribute('x', x + '%');
        frame.text.textContent = room >= 3 ? fit(frame.name, room) : '';
    }

    function baseline(frame) {
        return frame.depth * row + row / 2 + 4;
    }

    function setRow(height) {
        if (height === row) return;
        row = height;
        for (const frame of frames) {
            frame.rect.setAttribute('y', frame.depth * row);
            frame.rect.setAttribute('height', row - 1);
            if (frame.text) frame.text.setAttribute('y', baseline(frame));
        }
    }

    function layout() {
        const width = arrange();
        if (standalone && pageWidth() !== width) arrange(); // a scrollbar has appeared or gone
    }

    function pageWidth() {
        return standalone ? Math.max(document.documentElement.clientWidth, 320) : svg.getBoundingClientRect().width;
    }

    // Callers of the zoomed frame get the full width, its callees share it, and all other frames are hidden.
    function arrange() {
        const width = pageWidth(), pixels = width - 2 * MARGIN, narrow = width < NARROW;
        const top = frames[zoomed], callers = new Set();
        for (let i = top.parent; i >= 0; i = frames[i].parent) callers.add(i);
        svg.classList.toggle('narrow', narrow);
        setRow(narrow || window.matchMedia('(pointer: coarse)').matches ? FINGER : ROW);
        canvas.setAttribute('width', pixels);
        frames.forEach(function (frame, i) {
            const inside = i >= zoomed && i < top.end;
            frame.g.style.display = inside || callers.has(i) ? '' : 'none';
            frame.g.classList.toggle('up', callers.has(i));
            if (inside) draw(frame, (frame.x - top.x) * 100 / top.w, frame.w * 100 / top.w, pixels);
            else if (callers.has(i)) draw(frame, 0, 100, pixels);
        });
        bar.reset.hidden = zoomed === 0;
        bar.field.placeholder = narrow ? 'Search' : 'Search (Ctrl-F)';
        showMatched();
        return width;
    }

    // Puts the frames below the header, whose height depends on its texts and on the width.
    function placeFrames() {
        const top = bar.box.offsetHeight, remark = remarkHolder ? remarkHolder.firstChild.offsetHeight + row : 0;
        const height = rows * row + remark;
        bar.holder.setAttribute('height', top);
        head.querySelector('.back').setAttribute('height', top);
        canvas.setAttribute('y', top);
        canvas.setAttribute('height', height);
        if (remarkHolder) remarkHolder.setAttribute('y', row * 3 / 2);
        if (remarkHolder) remarkHolder.setAttribute('height', remark);
        svg.setAttribute('height', top + height + MARGIN);
        // Many pages style SVGs with "height: auto", which would follow the attributes' ratio.
        if (!standalone) svg.style.aspectRatio = pageWidth() + ' / ' + (top + height + MARGIN);
    }

    function zoom(index) {
        zoomed = index;
        showDetails(indexOf(document.activeElement));
        layout();
    }

    // A name matches if it contains the term, or if the term is a valid regular expression that matches. Ignores case.
    function compile(term) {
        const plain = term.toLowerCase();
        let pattern = null;
        try {
            pattern = new RegExp(term, 'i');
        } catch (error) { /* not a valid expression, such as "f (a.py" */ }
        return name => name.toLowerCase().includes(plain) || pattern !== null && pattern.test(name);
    }

    function search(term) {
        matcher = term ? compile(term) : null;
        setMatch(-1);
        svg.classList.toggle('searching', matcher !== null);
        for (const frame of frames) {
            frame.hit = matcher !== null && matcher(frame.name);
            frame.g.classList.toggle('hit', frame.hit);
        }
        showMatched();
    }

    // The matches in the zoomed frame, and the percentage of its samples in or below them. Nested matches count once.
    function matches() {
        const top = frames[zoomed], list = [];
        let sum = 0, end = 0;
        for (let i = zoomed; i < top.end; i++) {
            if (!frames[i].hit) continue;
            list.push(i);
            if (i < end) continue;
            sum += frames[i].w;
            end = frames[i].end;
        }
        return { list, share: 100 * sum / top.w };
    }

    // "No matches", "1 match, 34.5%", "3 of 12 matches, 34.5%"
    function showMatched() {
        const { list, share } = matches(), n = list.length, at = list.indexOf(match) + 1;
        let text = 'No matches';
        if (n > 0) text = (at ? at + ' of ' : '') + n + (n === 1 ? ' match, ' : ' matches, ');
        if (n > 0) text += share.toFixed(share < 1 ? 2 : 1) + '%';
        if (n === 0 && zoomed > 0 && frames.some(frame => frame.hit)) text += ' in this frame';
        bar.matched.textContent = matcher ? text : '';
        bar.spoken.textContent = !matcher ? '' : at ? text + ': ' + frames[match].info : text;
        placeFrames();
    }

    function setMatch(index) {
        if (match >= 0) frames[match].g.classList.remove('now');
        match = index;
        if (match >= 0) frames[match].g.classList.add('now');
    }

    // Goes to the next match, or to the previous one if `step` is -1. The search field keeps the focus.
    function nextMatch(step) {
        const { list } = matches();
        if (list.length === 0) return;
        const at = list.indexOf(match), next = at < 0 && step < 0 ? list.length - 1 : (at + step + list.length) % list.length;
        setMatch(list[next]);
        setCurrent(match);
        showMatched();
        showDetails(match);
        reveal(match);
    }

    // Shows a frame's name and values in the header; without a frame, those of the zoomed one.
    function showDetails(index) {
        const frame = frames[index < 0 ? zoomed : index];
        bar.name.textContent = frame.name;
        bar.total.textContent = 'total ' + frame.total;
        bar.self.textContent = 'self ' + frame.self;
    }

    // Scrolls until a frame is in the window and not behind the header.
    function reveal(index) {
        const rect = frames[index].rect;
        if (!standalone) {
            rect.scrollIntoView({ block: 'nearest', inline: 'nearest' });
            return;
        }
        const box = rect.getBoundingClientRect(), top = bar.box.offsetHeight + 2, bottom = window.innerHeight - 2;
        if (box.top < top) window.scrollBy(0, box.top - top);
        else if (box.bottom > bottom) window.scrollBy(0, Math.min(box.bottom - bottom, box.top - top));
    }

    function indexOf(target) {
        const g = target && target.closest ? target.closest('.f') : null;
        return g ? Number(g.getAttribute('data-i')) : -1;
    }

    // The current frame is the one that the tab key goes to.
    function setCurrent(index) {
        frames[current].g.setAttribute('tabindex', '-1');
        current = index;
        frames[current].g.setAttribute('tabindex', '0');
    }

    // The nearest visible sibling in direction `step`, or the frame itself.
    function sibling(index, step) {
        for (let i = index + step; i > frames[index].parent && i >= 0 && i < frames.length; i += step)
            if (frames[i].parent === frames[index].parent && frames[i].g.style.display !== 'none') return i;
        return index;
    }

    function child(index) {
        for (let i = index + 1; i < frames[index].end; i++)
            if (frames[i].parent === index && frames[i].g.style.display !== 'none') return i;
        return index;
    }

    const moves = {
        ArrowUp: i => Math.max(frames[i].parent, 0), ArrowDown: child,
        ArrowLeft: i => sibling(i, -1), ArrowRight: i => sibling(i, 1)
    };

    function onKey(event) {
        const inField = event.target === bar.field;
        if (event.isComposing) return; // Enter ends the input of a Chinese word
        if ((event.ctrlKey || event.metaKey) && event.key === 'f' || event.key === '/' && !inField) {
            if (inField) return; // a second Ctrl-F opens the browser's own search
            bar.field.focus();
            bar.field.select();
        } else if (event.key === 'Escape') {
            if (matcher) search(bar.field.value = '');
            else zoom(0);
            if (inField) bar.field.blur();
        } else if (inField && event.key === 'Enter') {
            nextMatch(event.shiftKey ? -1 : 1);
        } else if (inField || indexOf(event.target) < 0) {
            return;
        } else if (moves[event.key]) {
            frames[moves[event.key](current)].g.focus({ preventScroll: true });
        } else if (event.key === 'Enter' || event.key === ' ') {
            zoom(current);
        } else {
            return;
        }
        event.preventDefault();
    }

    // Replaces the header's texts with HTML, which wraps and truncates them to the width.
    function makeBar() {
        const old = head.querySelectorAll('text');
        const holder = create(SVG, 'foreignObject', head, { width: '100%', height: 100 });
        const box = create(HTML, 'div', holder, { class: 'bar' });
        create(HTML, 'div', box, { class: 'title', title: fullTitle }).textContent = fullTitle;
        create(HTML, 'div', box, { class: 'sub' }).textContent = old[1].textContent;
        const tools = create(HTML, 'div', box, { class: 'tools' });
        const reset = create(HTML, 'button', tools, { type: 'button', class: 'reset', title: 'Show everything (Esc)' });
        const field = create(HTML, 'input', tools, {
            type: 'search', class: 'search', enterkeyhint: 'search',
            title: 'Enter: next match, Shift-Enter: previous match', 'aria-label': 'Search frames, text or pattern'
        });
        const matched = create(HTML, 'div', box, { class: 'matched' });
        const spoken = create(HTML, 'div', box, { class: 'spoken', role: 'status' });
        const details = create(HTML, 'div', box, { class: 'details' });
        const [name, total, self] = ['name', 'total', 'self'].map(part => create(HTML, 'div', details, { class: part }));
        reset.textContent = 'Reset zoom';
        reset.addEventListener('click', () => zoom(0));
        field.addEventListener('input', () => search(field.value));
        for (const text of old) text.remove();
        return { holder, box, reset, field, matched, spoken, name, total, self };
    }

    // Without samples, a remark says why. Returns it as HTML, which wraps, or null.
    function makeRemark() {
        const lines = [...canvas.querySelectorAll('.remark')];
        if (lines.length === 0) return null;
        const holder = create(SVG, 'foreignObject', canvas, { x: 4, width: '98%' });
        create(HTML, 'p', holder, { class: 'remark' }).textContent = lines.map(line => line.textContent).join(' ');
        for (const line of lines) line.remove();
        return holder;
    }

    const bar = makeBar(), remarkHolder = makeRemark();
    svg.removeAttribute('viewBox');
    svg.setAttribute('aria-label', 'Flame graph: ' + fullTitle);
    canvas.setAttribute('role', 'group');
    canvas.setAttribute('aria-label', 'Frames. Arrow keys move, Enter zooms, Escape shows everything.');
    for (const frame of frames) {
        frame.g.setAttribute('tabindex', '-1');
        frame.g.setAttribute('role', 'button');
        frame.g.setAttribute('aria-label', frame.info);
        frame.g.querySelector('title').textContent = frame.info;
    }
    frames[0].g.setAttribute('tabindex', '0');
    canvas.addEventListener('click', function (event) {
        const index = indexOf(event.target);
        if (index < 0) return;
        frames[index].g.focus({ preventScroll: true });
        zoom(index);
    });
    canvas.addEventListener('mousemove', function (event) {
        // Browsers also send this event when a frame moves below a resting pointer: the focused frame keeps the details then.
        if (event.screenX === pointer.x && event.screenY === pointer.y) return;
        pointer = { x: event.screenX, y: event.screenY };
        showDetails(indexOf(event.target));
    });
    canvas.addEventListener('mouseleave', () => showDetails(indexOf(document.activeElement)));
    canvas.addEventListener('focusin', function (event) {
        const index = indexOf(event.target);
        setCurrent(index);
        showDetails(index);
        reveal(index);
    });
    svg.addEventListener('keydown', onKey);
    if (standalone) {
        svg.setAttribute('width', '100%');
        create(HTML, 'meta', svg, { name: 'viewport', content: 'width=device-width, initial-scale=1' });
        window.addEventListener('scroll', () => head.setAttribute('transform', 'translate(0 ' + window.scrollY + ')'));
        window.addEventListener('keydown', event => { if (!svg.contains(event.target)) onKey(event); });
    }
    let waiting = 0;
    window.addEventListener('resize', function () {
        cancelAnimationFrame(waiting);
        waiting = requestAnimationFrame(layout);
    });
    zoom(0);
})();
