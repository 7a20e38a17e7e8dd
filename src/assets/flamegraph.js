// Search, zoom and keyboard control of the flame graph. Reads the frames from the SVG, where callers precede callees:
// <g class="f"><title>name (N samples, P%)</title><rect/><text/></g>, or with seconds: (1.23 s, P%)
'use strict';
(function () {
    const SVG = 'http://www.w3.org/2000/svg', HTML = 'http://www.w3.org/1999/xhtml';
    const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\u{1f000}-\u{3ffff}]/u;
    const ROW = 18, CHAR = 7.3, MARGIN = 10;
    const svg = document.currentScript.closest('svg');
    const canvas = svg.querySelector('.frames'), head = svg.querySelector('.head');
    const details = head.querySelector('.details'), title = head.querySelector('.title');
    const fullTitle = svg.querySelector('title').textContent;
    const standalone = svg === document.documentElement;
    const frames = readFrames();
    let zoomed = 0, current = 0, matcher = null;

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
            const depth = Math.round(rect.getAttribute('y') / ROW);
            while (open.length > depth) list[open.pop()].end = list.length;
            list.push({
                g, rect, info, depth, text: g.querySelector('text'),
                name: info.replace(/ \([\d,.]+ (samples|s), [\d.]+%\)$/, ''),
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
        if (room >= 3 && !frame.text) frame.text = create(SVG, 'text', frame.g, { dx: 4, y: frame.depth * ROW + 13 });
        if (!frame.text) return;
        frame.text.setAttribute('x', x + '%');
        frame.text.textContent = room >= 3 ? fit(frame.name, room) : '';
    }

    // Callers of the zoomed frame get the full width, its callees share it, and all other frames are hidden.
    function layout() {
        const page = document.documentElement;
        const width = standalone ? Math.max(page.clientWidth, 320) : svg.getBoundingClientRect().width;
        const pixels = width - 2 * MARGIN, top = frames[zoomed], callers = new Set();
        for (let i = top.parent; i >= 0; i = frames[i].parent) callers.add(i);
        canvas.setAttribute('width', pixels);
        frames.forEach(function (frame, i) {
            const inside = i >= zoomed && i < top.end;
            frame.g.style.display = inside || callers.has(i) ? '' : 'none';
            frame.g.classList.toggle('up', callers.has(i));
            if (inside) draw(frame, (frame.x - top.x) * 100 / top.w, frame.w * 100 / top.w, pixels);
            else if (callers.has(i)) draw(frame, 0, 100, pixels);
        });
        title.textContent = fit(fullTitle, Math.floor((width - 400) / 9.6));
        tools.holder.setAttribute('x', width - 370 - MARGIN);
        tools.matched.setAttribute('x', width - MARGIN);
        tools.reset.hidden = zoomed === 0;
        showMatched();
    }

    function zoom(index) {
        zoomed = index;
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
        svg.classList.toggle('searching', matcher !== null);
        for (const frame of frames) {
            frame.hit = matcher !== null && matcher(frame.name);
            frame.g.classList.toggle('hit', frame.hit);
        }
        showMatched();
    }

    // Shows the percentage of the zoomed frame's samples that are in or below a match. Nested matches count once.
    function showMatched() {
        const top = frames[zoomed];
        let sum = 0;
        for (let i = zoomed; i < top.end;) {
            if (frames[i].hit) sum += frames[i].w;
            i = frames[i].hit ? frames[i].end : i + 1;
        }
        tools.matched.textContent = matcher ? 'Matched: ' + (100 * sum / top.w).toFixed(2) + '%' : '';
    }

    function indexOf(target) {
        const g = target.closest ? target.closest('.f') : null;
        return g ? Number(g.getAttribute('data-i')) : -1;
    }

    function focus(index, stay) {
        frames[current].g.setAttribute('tabindex', '-1');
        current = index;
        frames[current].g.setAttribute('tabindex', '0');
        frames[current].g.focus({ preventScroll: stay });
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
        const inField = event.target === tools.field;
        if ((event.ctrlKey || event.metaKey) && event.key === 'f' || event.key === '/' && !inField) {
            if (inField) return; // a second Ctrl-F opens the browser's own search
            tools.field.focus();
            tools.field.select();
        } else if (event.key === 'Escape') {
            if (matcher) search(tools.field.value = '');
            else zoom(0);
            if (inField) tools.field.blur();
        } else if (inField || indexOf(event.target) < 0) {
            return;
        } else if (moves[event.key]) {
            focus(moves[event.key](current), false);
        } else if (event.key === 'Enter' || event.key === ' ') {
            zoom(current);
        } else {
            return;
        }
        event.preventDefault();
    }

    function makeTools() {
        const holder = create(SVG, 'foreignObject', head, { y: 10, width: 370, height: 34 });
        const bar = create(HTML, 'div', holder, { class: 'tools' });
        const reset = create(HTML, 'button', bar, { type: 'button', class: 'reset', title: 'Show everything (Esc)' });
        const field = create(HTML, 'input', bar, {
            type: 'search', class: 'search', placeholder: 'Search (Ctrl-F)',
            'aria-label': 'Search frames, text or pattern'
        });
        reset.textContent = 'Reset zoom';
        reset.addEventListener('click', () => zoom(0));
        field.addEventListener('input', () => search(field.value));
        const matched = create(SVG, 'text', head, { class: 'matched', y: 62, 'aria-live': 'polite' });
        return { holder, reset, field, matched };
    }

    const tools = makeTools();
    for (const frame of frames) {
        frame.g.setAttribute('tabindex', '-1');
        frame.g.setAttribute('role', 'button');
        frame.g.setAttribute('aria-label', frame.info);
    }
    frames[0].g.setAttribute('tabindex', '0');
    canvas.addEventListener('click', function (event) {
        const index = indexOf(event.target);
        if (index < 0) return;
        focus(index, true);
        zoom(index);
    });
    for (const type of ['mouseover', 'focusin'])
        canvas.addEventListener(type, function (event) {
            const index = indexOf(event.target);
            details.textContent = index < 0 ? '' : frames[index].info;
        });
    canvas.addEventListener('mouseleave', () => { details.textContent = ''; });
    svg.addEventListener('keydown', onKey);
    if (standalone) {
        svg.setAttribute('width', '100%');
        window.addEventListener('scroll', () => head.setAttribute('transform', 'translate(0 ' + window.scrollY + ')'));
        window.addEventListener('keydown', event => { if (!svg.contains(event.target)) onKey(event); });
    }
    let waiting = 0;
    window.addEventListener('resize', function () {
        cancelAnimationFrame(waiting);
        waiting = requestAnimationFrame(layout);
    });
    layout();
})();
