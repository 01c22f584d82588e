package monitoring

// Panels stand in rows of two, on Grafana's grid of 24 columns.
const (
	gridColumns = 24
	panelWidth  = gridColumns / 2
	panelHeight = 8
)

// grafanaSchema is the version of the model below: that of Grafana 9.5. Newer ones migrate it.
const grafanaSchema = 38

// The types below are Grafana's model of a dashboard, as far as ours have it.
type (
	model struct {
		UID           string         `json:"uid"`
		Title         string         `json:"title"`
		Tags          []string       `json:"tags"`
		SchemaVersion int            `json:"schemaVersion"`
		Refresh       string         `json:"refresh"`
		Time          timeRange      `json:"time"`
		Templating    templating     `json:"templating"`
		Panels        []grafanaPanel `json:"panels"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string      `json:"name"`
		Label      string      `json:"label"`
		Type       string      `json:"type"`
		Query      string      `json:"query"`
		Datasource *datasource `json:"datasource,omitempty"`
		Multi      bool        `json:"multi,omitempty"`
		IncludeAll bool        `json:"includeAll,omitempty"`
		AllValue   string      `json:"allValue,omitempty"`
		Refresh    int         `json:"refresh,omitempty"`
	}
	datasource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	grafanaPanel struct {
		ID          int         `json:"id"`
		Type        string      `json:"type"`
		Title       string      `json:"title"`
		Datasource  datasource  `json:"datasource"`
		GridPos     gridPos     `json:"gridPos"`
		FieldConfig fieldConfig `json:"fieldConfig"`
		Targets     []target    `json:"targets"`
	}
	gridPos struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	}
	fieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
			Min  int    `json:"min"`
		} `json:"defaults"`
		Overrides []struct{} `json:"overrides"`
	}
	target struct {
		RefID        string     `json:"refId"`
		Datasource   datasource `json:"datasource"`
		Expr         string     `json:"expr"`
		LegendFormat string     `json:"legendFormat"`
	}
)

// prometheus is the data source that the reader has chosen.
var prometheus = datasource{Type: "prometheus", UID: "${datasource}"}

// model returns the dashboard as Grafana imports it.
func (d Dashboard) model() model {
	m := model{
		UID: "heddle-" + d.name, Title: d.Title, Tags: []string{"heddle"}, SchemaVersion: grafanaSchema, Refresh: "30s",
		Time: timeRange{"now-3h", "now"},
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus"},
			// Every process has its version. A refresh of 2: with each change of the time range.
			{Name: "instance", Label: "Process", Type: "query", Query: "label_values(heddle_build_info, instance)", Datasource: &prometheus,
				Multi: true, IncludeAll: true, AllValue: ".*", Refresh: 2},
		}},
	}
	for i, p := range d.panels {
		m.Panels = append(m.Panels, p.model(i))
	}
	return m
}

// model returns the panel at a place, counted from 0.
func (p panel) model(place int) grafanaPanel {
	g := grafanaPanel{
		ID: place + 1, Type: "timeseries", Title: p.title, Datasource: prometheus,
		GridPos:     gridPos{X: place % 2 * panelWidth, Y: place / 2 * panelHeight, W: panelWidth, H: panelHeight},
		FieldConfig: fieldConfig{Overrides: []struct{}{}},
	}
	g.FieldConfig.Defaults.Unit = string(p.unit)
	for i, q := range p.queries {
		g.Targets = append(g.Targets, target{RefID: string(rune('A' + i)), Datasource: prometheus, Expr: q.expr, LegendFormat: q.legend})
	}
	return g
}
